package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podrun.io/podrun/internal/cli"
)

const (
	// lastLines and lastBytes bound how much of a log a page has when it is loaded.
	lastLines = 200
	lastBytes = 256 << 10
)

// podData is a pod as its page shows it.
type podData struct {
	row
	UID, Node, Started, Message string
	Of                          []containerRow
	// Conditions are those that do not hold.
	Conditions []conditionRow
	Events     []eventRow
	// Chosen is the container whose log is shown, of its run before the last if Previous.
	Chosen   string
	Previous bool
	// Log is what it wrote last; without, LogWhy says why there is none.
	Log, LogWhy string
}

type containerRow struct {
	Name, Kind, Image, State, Detail, Before, CPU, Memory string
	Restarts                                              int32
	Ready, Well                                           bool
	// Run is the newest run's identity; "" while there was none.
	Run string
}

type conditionRow struct{ Type, Status, Reason string }

type eventRow struct {
	When, Type, Reason, Message string
	Count                       int32
}

// pod answers with the page of a pod.
func (p page) pod(w http.ResponseWriter, r *http.Request) {
	d, err := p.podOf(r)
	if errors.Is(err, ErrNotFound) {
		p.send(w, http.StatusNotFound, "absent", r.PathValue("namespace")+"/"+r.PathValue("pod"), nil)
		return
	}
	if err == nil {
		d.Log, d.LogWhy = p.lastOf(r.Context(), d)
	}
	p.send(w, http.StatusOK, "pod", d, err)
}

// podParts are the parts of a pod's page that change.
func (p page) podParts(r *http.Request) (map[string]string, error) {
	out := map[string]string{}
	d, err := p.podOf(r)
	if errors.Is(err, ErrNotFound) {
		out["story"], err = p.render("gone", nil)
		return out, err
	}
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"story", "events"} {
		if out[name], err = p.render(name, d); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// podOf reads all about the pod of a request but its log.
func (p page) podOf(r *http.Request) (podData, error) {
	pods, err := p.o.Node.Pods()
	if err != nil {
		return podData{}, err
	}
	namespace, name := r.PathValue("namespace"), r.PathValue("pod")
	i := slices.IndexFunc(pods, func(one v1.Pod) bool { return one.Namespace == namespace && one.Name == name })
	if i < 0 {
		return podData{}, fmt.Errorf("pod %s/%s: %w", namespace, name, ErrNotFound)
	}
	d := dataOf(&pods[i], p.usage()[string(pods[i].UID)], time.Now())
	d.Events = p.eventsOf(&pods[i])
	d.Previous = r.URL.Query().Get("previous") == "true"
	if chosen := r.URL.Query().Get("container"); slices.Contains(d.Containers, chosen) {
		d.Chosen = chosen
	}
	return d, nil
}

func dataOf(p *v1.Pod, taken kubelet.PodStats, now time.Time) podData {
	d := podData{row: rowOf(p, taken, now), UID: string(p.UID), Node: p.Spec.NodeName, Message: cli.Plain(p.Annotations["podrun.io/manifest-error"])}
	if p.Status.StartTime != nil {
		d.Started = when(p.Status.StartTime.Time)
	}
	for _, c := range p.Status.Conditions {
		if c.Status == v1.ConditionTrue {
			continue
		}
		d.Conditions = append(d.Conditions, conditionRow{string(c.Type), string(c.Status), cli.Plain(reasonAnd(c.Reason, c.Message))})
	}
	for _, r := range cli.InitialFirst(cli.Roles(p)) {
		one := containerOf(r)
		for _, c := range taken.Containers {
			if c.Name == one.Name {
				one.CPU, one.Memory = cores(c.CPU), mebibytes(c.Memory)
			}
		}
		d.Of = append(d.Of, one)
		if d.Chosen == "" && !r.Init || one.Name == p.Annotations["kubectl.kubernetes.io/default-container"] {
			d.Chosen = one.Name
		}
	}
	return d
}

func containerOf(r cli.Role) containerRow {
	c := containerRow{Name: r.Container.Name, Kind: r.Kind(), Image: cli.Plain(r.Container.Image)}
	s := r.Status
	if s == nil {
		return c
	}
	c.Restarts, c.Ready, c.Run = s.RestartCount, s.Ready, s.ContainerID
	c.State, c.Detail = stateOf(s.State)
	if t := s.LastTerminationState.Terminated; t != nil {
		_, c.Before = stateOf(s.LastTerminationState)
	}
	c.Well = s.Ready || s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
	return c
}

// stateOf words a container's state, and what is to be known of it.
func stateOf(s v1.ContainerState) (state, detail string) {
	switch {
	case s.Running != nil:
		return "Running", "since " + when(s.Running.StartedAt.Time)
	case s.Waiting != nil:
		return "Waiting", cli.Plain(reasonAnd(s.Waiting.Reason, s.Waiting.Message))
	case s.Terminated != nil:
		t := s.Terminated
		text := fmt.Sprintf("exit code %d at %s", t.ExitCode, when(t.FinishedAt.Time))
		if t.Reason != "" {
			text = t.Reason + ", " + text
		}
		return "Terminated", cli.Plain(reasonAnd(text, strings.TrimSpace(t.Message)))
	}
	return "", ""
}

// eventsOf are what happened to a pod, the newest first: a page is read from its top.
func (p page) eventsOf(of *v1.Pod) []eventRow {
	if p.o.Events == nil {
		return nil
	}
	all, err := p.o.Events()
	if err != nil {
		p.o.Log.Debug("events cannot be shown", "why", err)
	}
	var out []eventRow
	for _, e := range slices.Backward(all) {
		o := e.InvolvedObject
		if o.Kind != "Pod" || o.Namespace != of.Namespace || o.Name != of.Name || o.UID != of.UID && o.UID != "" {
			continue
		}
		out = append(out, eventRow{When: when(e.LastTimestamp.Time), Type: e.Type, Reason: e.Reason, Message: cli.Plain(e.Message), Count: e.Count})
	}
	return out
}

// lastOf are the last lines of the chosen container's log.
func (p page) lastOf(ctx context.Context, d podData) (text, why string) {
	var out ending
	tail := lastLines
	err := p.o.Node.Log(ctx, LogRequest{Namespace: d.Namespace, Pod: d.Name, Container: d.Chosen, Previous: d.Previous, Tail: &tail}, &out)
	if err != nil && len(out) == 0 {
		return "", err.Error()
	}
	return readable(string(out[max(0, len(out)-lastBytes):])), ""
}

// ending keeps the last of what is written to it, lastBytes at least.
type ending []byte

// Write implements io.Writer.
func (e *ending) Write(text []byte) (int, error) {
	*e = append(*e, text...)
	if len(*e) > 2*lastBytes {
		*e = append(ending{}, (*e)[len(*e)-lastBytes:]...)
	}
	return len(text), nil
}

// readable is a log's text without what would colour a terminal; other control characters are spelled out.
func readable(text string) string {
	sequences := regexp.MustCompile("\x1b\\[[0-?]*[ -/]*[@-~]|\x1b\\][^\a\x1b]*(\a|\x1b\\\\)|\r")
	return cli.Plain(sequences.ReplaceAllString(text, ""))
}
