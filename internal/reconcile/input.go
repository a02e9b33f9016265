package reconcile

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// input returns the planner's input.
func (w *worker) input(seen pod.Observed) plan.Input {
	var since time.Time
	if w.state.pod != nil && slices.Contains(seen.Data, w.state.pod.UID) {
		since = w.since(w.state.pod)
	}
	return w.halted(plan.Input{
		Since:      since,
		MaxGrace:   w.longestGrace(),
		Node:       w.o.Node,
		Used:       w.used(),
		NodeLabels: w.o.NodeLabels,
		Pod:        w.state.pod,
		Resized:    w.state.resized,
		Observed:   w.instances.steady(seen),
		Images:     w.puller.states(),
		Signalled:  w.instances.signalled,
		Failures:   w.failures.last,
		Probed:     w.hooks.results.of(seen),
		After:      w.after(),
		Evicted:    w.measure.why,
		Boot:       w.o.Boot,
		Earlier:    w.state.earlier,
		Replaced:   w.state.replaced,
		MaxBackoff: w.o.MaxBackoff,
		Now:        time.Now(),
	})
}

// longestGrace is the longest grace period that applies now; nil: each instance's own.
func (w *worker) longestGrace() *time.Duration {
	select {
	case <-w.o.Hurry:
		return new(time.Duration)
	default:
		return w.state.maxGrace
	}
}

// halted adds a shutdown of the machine to the planner's input. A pod that is not desired any more
// is terminated with the priority of its last manifest.
func (w *worker) halted(in plan.Input) plan.Input {
	h := w.shared.halt.Load()
	if h == nil {
		return in
	}
	p := w.state.pod
	if p == nil {
		p = w.manifests.running(nil, in.Observed)
	}
	if p == nil {
		p = &v1.Pod{} // its manifest is not known
	}
	if pod.Priority(p) >= h.Below {
		return in
	}
	in.Halted = true
	if in.MaxGrace == nil || h.Grace < *in.MaxGrace {
		in.MaxGrace = new(time.Duration)
		*in.MaxGrace = h.Grace
	}
	return in
}

// final reports that p, which is on the machine, has reached its final phase and is not run again.
func (w *worker) final(p *v1.Pod, seen pod.Observed) bool {
	return plan.Final(plan.Input{
		Pod:      p,
		Since:    w.since(p),
		Observed: w.instances.steady(seen),
		Probed:   w.hooks.results.of(seen),
		Evicted:  w.measure.why,
		Boot:     w.o.Boot,
		Earlier:  w.state.earlier,
		Now:      time.Now(),
	})
}

// since returns when p's revision began, as a monotonic time of this process.
func (w *worker) since(p *v1.Pod) time.Time {
	since, _ := time.Parse(time.RFC3339Nano, p.Annotations[manifest.AnnotationSeen])
	return w.instances.clock.monotonic(string(p.UID), since)
}

// account records whether the worker's pod is on the machine: it is as long as it has a sandbox, or
// an instance that runs or whose state is unknown.
func (w *worker) account(seen pod.Observed) {
	there := len(seen.Sandboxes) > 0
	for _, c := range seen.Containers {
		there = there || c.State == pod.Running || c.State == pod.Unknown
	}
	switch {
	case !there:
		w.shared.resources.Release(w.key)
	case w.state.pod != nil:
		w.shared.resources.Hold(w.key, plan.Requests(w.state.pod))
	} // a pod that is being terminated keeps its reservation
}

// used returns what other pods have requested, if the worker's pod needs resources.
func (w *worker) used() v1.ResourceList {
	if w.state.pod == nil || w.state.resized == nil && len(plan.Requests(w.state.pod)) == 0 {
		return nil
	}
	return w.shared.resources.Used(w.key, w.mailbox, w.state.resized != nil)
}

// after returns the pods that the worker's pod still has to wait for.
func (w *worker) after() []pod.Key {
	if w.state.pod == nil {
		return nil
	}
	return w.shared.order.Missing(w.mailbox, pod.After(w.state.pod))
}
