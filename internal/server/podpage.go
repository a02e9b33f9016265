package server

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"sigs.k8s.io/yaml"

	"podrun.io/podrun/internal/server/chart"
	"podrun.io/podrun/internal/server/detail"
	"podrun.io/podrun/internal/server/podlog"
	"podrun.io/podrun/internal/server/rows"
	"podrun.io/podrun/internal/server/sparkline"
	"podrun.io/podrun/internal/status/summary"
)

// podData is a pod as its page shows it.
type podData struct {
	rows.Row
	podlog.Choice
	UID, Node, Started, Message string
	Of                          []containerRow
	// Conditions are the conditions whose status is not True.
	Conditions []conditionRow
	Events     []eventRow
	Chart      chart.Chart
	Lines      []lineRow
	Written    detail.Manifest
	Inside     detail.Contents
	// Spec is what the pod's containers, volumes and probes are, as YAML. Values of Secrets are not in it.
	Spec string
	// Log is the end of the log; if it is empty, LogWhy says why.
	Log    []podlog.Line
	LogWhy string
}

type containerRow struct {
	Name, Kind, Image, State, Detail, Before, CPU, Memory string
	CPULine, MemoryLine                                   sparkline.Line
	Restarts                                              int32
	Ready, Well                                           bool
	Probes                                                []string
	Ports                                                 []detail.Port
}

type conditionRow struct{ Type, Status, Reason string }

type eventRow struct {
	When, Type, Reason, Message string
	Count                       int32
}

// pod handles the page of a pod.
func (p page) pod(w http.ResponseWriter, r *http.Request) {
	d, err := p.podOf(r)
	if errors.Is(err, ErrNotFound) {
		p.send(w, http.StatusNotFound, "absent", r.PathValue("namespace")+"/"+r.PathValue("pod"), nil)
		return
	}
	if err == nil {
		d.Log, d.LogWhy = p.logTail(r.Context(), d)
	}
	p.send(w, http.StatusOK, "pod", d, err)
}

// podParts returns the parts of a pod's page that change, by element ID.
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
	for _, name := range []string{"story", "lines", "day", "contents", "manifest", "spec", "events", "log-of"} {
		if out[name], err = p.render(name, d); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// podOf reads everything but the log of the pod that the request names.
func (p page) podOf(r *http.Request) (podData, error) {
	one, err := p.podNamed(r.PathValue("namespace"), r.PathValue("pod"))
	if err != nil {
		return podData{}, err
	}
	d := dataOf(one, rows.UsageOf(p.used.now())[string(one.UID)], p.courses.Now(), time.Now())
	d.Events = p.eventsOf(one)
	p.addMore(&d, one, r, time.Now())
	d.Choose(r.URL.Query(), d.Containers)
	return d, nil
}

func dataOf(p *v1.Pod, taken kubelet.PodStats, before map[string]*sparkline.Course, now time.Time) podData {
	d := podData{
		Row:     rows.One(p, taken, before[string(p.UID)], now),
		UID:     string(p.UID),
		Node:    p.Spec.NodeName,
		Message: summary.Plain(p.Annotations["podrun.io/manifest-error"]),
	}
	if text, err := yaml.Marshal(p.Spec); err == nil {
		d.Spec = summary.Plain(string(text))
	}
	if p.Status.StartTime != nil {
		d.Started = formatTime(p.Status.StartTime.Time)
	}
	for _, c := range p.Status.Conditions {
		if c.Status == v1.ConditionTrue {
			continue
		}
		d.Conditions = append(d.Conditions, conditionRow{
			string(c.Type), string(c.Status), summary.Plain(reasonWithMessage(c.Reason, c.Message)),
		})
	}
	for _, r := range summary.InitialFirst(summary.Roles(p)) {
		one := containerOf(r)
		course := before[string(p.UID)+"/"+one.Name]
		limit := func(name v1.ResourceName) float64 { return rows.Amount(rows.ContainerLimit(r.Container, name), name) }
		one.CPULine = course.CPU(limit(v1.ResourceCPU))
		one.MemoryLine = course.Memory(limit(v1.ResourceMemory))
		for _, c := range taken.Containers {
			if c.Name == one.Name {
				one.CPU = rows.OfLimit(rows.Cores(c.CPU), rows.ContainerLimit(r.Container, v1.ResourceCPU))
				one.Memory = rows.OfLimit(rows.Mebibytes(c.Memory), rows.ContainerLimit(r.Container, v1.ResourceMemory))
			}
		}
		d.Of = append(d.Of, one)
		if d.Chosen == "" && !r.Init || one.Name == p.Annotations["kubectl.kubernetes.io/default-container"] {
			d.Chosen = one.Name
		}
	}
	return d
}

func containerOf(r summary.Role) containerRow {
	c := containerRow{Name: r.Container.Name, Kind: r.Kind(), Image: summary.Plain(r.Container.Image)}
	s := r.Status
	if s == nil {
		return c
	}
	c.Restarts, c.Ready = s.RestartCount, s.Ready
	c.State, c.Detail = stateOf(s.State)
	if t := s.LastTerminationState.Terminated; t != nil {
		_, c.Before = stateOf(s.LastTerminationState)
	}
	c.Well = s.Ready || s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
	return c
}

// stateOf returns a container's state and its details as the page shows them.
func stateOf(s v1.ContainerState) (state, detail string) {
	switch {
	case s.Running != nil:
		return "Running", "since " + formatTime(s.Running.StartedAt.Time)
	case s.Waiting != nil:
		return "Waiting", summary.Plain(reasonWithMessage(s.Waiting.Reason, s.Waiting.Message))
	case s.Terminated != nil:
		t := s.Terminated
		text := fmt.Sprintf("exit code %d at %s", t.ExitCode, formatTime(t.FinishedAt.Time))
		if t.Reason != "" {
			text = t.Reason + ", " + text
		}
		return "Terminated", summary.Plain(reasonWithMessage(text, strings.TrimSpace(t.Message)))
	}
	return "", ""
}

// eventsOf returns the events of a pod, newest first, because a page is read from its top.
func (p page) eventsOf(of *v1.Pod) []eventRow {
	if p.o.Events == nil {
		return nil
	}
	all, err := p.o.Events()
	if err != nil {
		p.o.Log.Debug("reading events for a page failed", "err", err)
	}
	var out []eventRow
	for _, e := range slices.Backward(all) {
		o := e.InvolvedObject
		if o.Kind != "Pod" || o.Namespace != of.Namespace || o.Name != of.Name || o.UID != of.UID && o.UID != "" {
			continue
		}
		out = append(out, eventRow{
			When: formatTime(e.LastTimestamp.Time), Type: e.Type, Reason: e.Reason,
			Message: summary.Plain(e.Message), Count: e.Count,
		})
	}
	return out
}
