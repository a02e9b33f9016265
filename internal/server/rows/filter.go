package rows

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

// Filter says which pods the page of all pods shows, and in which order: the page's address has it, so that a link
// shows the same to somebody else.
type Filter struct {
	Search, State, Namespace, Label, Sort string
	// selector is Label; Invalid says why it is none.
	selector labels.Selector
	Invalid  string
}

// Option is one of the values of a field of the filter, and what the page calls it.
type Option struct{ Value, Text string }

// States and Sorts are the values of the fields State and Sort. The first is that of a page that does not say it.
func (Filter) States() []Option {
	return []Option{{"", "any"}, {"unwell", "not well"}, {"well", "running"}, {"ended", "ended"}}
}

// Sorts returns the orders.
func (Filter) Sorts() []Option {
	return []Option{
		{"", "name"}, {"state", "state, worst first"}, {"restarts", "restarts"}, {"age", "age, newest first"},
		{"cpu", "CPU"}, {"memory", "memory"}, {"workload", "workload"},
	}
}

// FilterOf returns the filter of an address.
func FilterOf(query url.Values) Filter {
	f := Filter{
		Search: strings.TrimSpace(query.Get("search")), State: query.Get("state"), Namespace: query.Get("namespace"),
		Label: strings.TrimSpace(query.Get("label")), Sort: query.Get("sort"),
	}
	if !slices.ContainsFunc(f.States(), func(o Option) bool { return o.Value == f.State }) {
		f.Invalid = "There is no state " + summary.Plain(f.State) + ": pods of any are shown. "
		f.State = ""
	}
	var err error
	if f.selector, err = labels.Parse(f.Label); err != nil {
		f.Invalid += "These labels select nothing: " + summary.Plain(err.Error())
		f.selector = labels.Nothing()
	}
	return f
}

// Query returns the filter as a page's address has it; "" for all pods.
func (f Filter) Query() string {
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
func (f Filter) shows(p *v1.Pod, r *Row) bool {
	level := map[summary.Level]string{summary.Ill: "unwell", summary.Waiting: "unwell"}[r.Level]
	if f.State != "" && f.State != cmp.Or(level, string(r.Level)) || f.Namespace != "" && f.Namespace != p.Namespace {
		return false
	}
	text := strings.ToLower(strings.Join(append([]string{
		p.Namespace, r.Name, r.State, r.Reason, r.IP, r.Manifest, r.Workload,
	}, r.Containers...), "\n"))
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
func (f Filter) sort(all []Row) {
	order := map[string]func(a, b *Row) int{
		"state": func(a, b *Row) int {
			return cmp.Compare(slices.Index(levels, a.Level), slices.Index(levels, b.Level))
		},
		"restarts": func(a, b *Row) int { return cmp.Compare(b.order.restarts, a.order.restarts) },
		"age":      func(a, b *Row) int { return b.order.created.Compare(a.order.created) },
		"cpu":      func(a, b *Row) int { return cmp.Compare(b.order.cpu, a.order.cpu) },
		"memory":   func(a, b *Row) int { return cmp.Compare(b.order.memory, a.order.memory) },
		"workload": func(a, b *Row) int { // pods of none are the last
			return cmp.Or(-cmp.Compare(min(len(a.Workload), 1), min(len(b.Workload), 1)),
				cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Workload, b.Workload))
		},
	}[f.Sort]
	if order != nil {
		slices.SortStableFunc(all, func(a, b Row) int { return order(&a, &b) })
	}
}

// NamespacesOf returns the namespaces of pods, and that of the filter, for the page's list of them.
func (f Filter) NamespacesOf(pods []v1.Pod) []Option {
	all := []string{}
	if f.Namespace != "" {
		all = append(all, f.Namespace)
	}
	for i := range pods {
		all = append(all, pods[i].Namespace)
	}
	slices.Sort(all)
	out := []Option{{"", "all"}}
	for _, name := range slices.Compact(all) {
		out = append(out, Option{name, name})
	}
	return out
}

// Ago is a time before now as the page shows it; it changes at most once a minute.
func Ago(t, now time.Time) string {
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
