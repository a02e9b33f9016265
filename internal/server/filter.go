package server

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"podrun.io/podrun/internal/status/summary"
)

// filter says which pods the page of all pods shows, and in which order: the page's address has it, so that a link
// shows the same to somebody else.
type filter struct {
	Search, State, Namespace, Label, Sort string
	// selector is Label; Invalid says why it is none.
	selector labels.Selector
	Invalid  string
}

// option is one of the values of a field of the filter, and what the page calls it.
type option struct{ Value, Text string }

// States and Sorts are the values of the fields State and Sort. The first is that of a page that does not say it.
func (filter) States() []option {
	return []option{{"", "any"}, {"unwell", "not well"}, {"well", "running"}, {"ended", "ended"}}
}

// Sorts returns the orders.
func (filter) Sorts() []option {
	return []option{
		{"", "name"}, {"state", "state, worst first"}, {"restarts", "restarts"}, {"age", "age, newest first"},
		{"cpu", "CPU"}, {"memory", "memory"},
	}
}

// filterOf returns the filter of an address.
func filterOf(query url.Values) filter {
	f := filter{
		Search: strings.TrimSpace(query.Get("search")), State: query.Get("state"), Namespace: query.Get("namespace"),
		Label: strings.TrimSpace(query.Get("label")), Sort: query.Get("sort"),
	}
	var err error
	if f.selector, err = labels.Parse(f.Label); err != nil {
		f.Invalid = "These labels select nothing: " + summary.Plain(err.Error())
		f.selector = labels.Nothing()
	}
	return f
}

// Query returns the filter as a page's address has it; "" for all pods.
func (f filter) Query() string {
	q := url.Values{}
	for name, value := range map[string]string{
		"search": f.Search, "state": f.State, "namespace": f.Namespace, "label": f.Label, "sort": f.Sort,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

// shows reports whether the page shows a pod.
func (f filter) shows(p *v1.Pod, r *row) bool {
	level := map[summary.Level]string{summary.Ill: "unwell", summary.Waiting: "unwell"}[r.Level]
	if f.State != "" && f.State != cmp.Or(level, string(r.Level)) || f.Namespace != "" && f.Namespace != p.Namespace {
		return false
	}
	text := strings.ToLower(strings.Join(append([]string{p.Namespace, r.Name, r.State, r.Reason, r.IP, r.Manifest},
		r.Containers...), "\n"))
	for _, word := range strings.Fields(strings.ToLower(f.Search)) {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return f.selector.Matches(labels.Set(p.Labels))
}

// levels are the levels of pods, the worst first.
var levels = []summary.Level{summary.Ill, summary.Waiting, summary.Well, summary.Ended}

// sort puts rows, which are sorted by name, into the order.
func (f filter) sort(all []row) {
	order := map[string]func(a, b *row) int{
		"state": func(a, b *row) int {
			return cmp.Compare(slices.Index(levels, a.Level), slices.Index(levels, b.Level))
		},
		"restarts": func(a, b *row) int { return cmp.Compare(b.restarts, a.restarts) },
		"age":      func(a, b *row) int { return b.created.Compare(a.created) },
		"cpu":      func(a, b *row) int { return cmp.Compare(b.cpu, a.cpu) },
		"memory":   func(a, b *row) int { return cmp.Compare(b.memory, a.memory) },
	}[f.Sort]
	if order != nil {
		slices.SortStableFunc(all, func(a, b row) int { return order(&a, &b) })
	}
}

// namespacesOf returns the namespaces of pods, and that of the filter, for the page's list of them.
func (f filter) namespacesOf(pods []v1.Pod) []option {
	all := []string{}
	if f.Namespace != "" {
		all = append(all, f.Namespace)
	}
	for i := range pods {
		all = append(all, pods[i].Namespace)
	}
	slices.Sort(all)
	out := []option{{"", "all"}}
	for _, name := range slices.Compact(all) {
		out = append(out, option{name, name})
	}
	return out
}

// ago is a time before now as the page shows it; it changes at most once a minute.
func ago(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case t.IsZero():
		return ""
	case d < time.Minute:
		return "<1m"
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}
