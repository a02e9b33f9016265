package reconcile

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// input returns the planner's input. Whether the pod was interrupted is read after seen was: it is recorded before the
// first signal, so seen cannot have an exit that followed that signal without it.
func (w *worker) input(seen pod.Observed, requests []pod.RestartRequest) (in plan.Input, err error) {
	if err := w.chooseResult(seen); err != nil {
		return in, err
	}
	interrupted := false
	if w.state.Pod != nil {
		if interrupted, err = w.interrupted(w.state.Pod.UID); err != nil {
			return in, err
		}
	}
	var since time.Time
	if w.state.Pod != nil && slices.Contains(seen.Data, w.state.Pod.UID) {
		since = w.since(w.state.Pod, seen)
	}
	return plan.Input{
		Since:      since,
		Limits:     w.graceLimits(seen),
		Machine:    w.machine(seen),
		NodeLabels: w.o.NodeLabels,
		Pod:        w.state.Pod,
		Resized:    w.state.Resized,
		Observed:   w.life.Instances.Monotonic(seen),
		Images:     w.puller.States(),
		Signalled:  w.life.Instances.Signalled(),
		Failures:   w.failures.Last,
		Probed:     withRequests(w.life.Results.Of(seen), requests),
		After:      w.after(),
		Evicted:    w.measure.Why(),
		Boot:       w.o.Boot,
		Earlier:    w.state.Earlier,
		Replaced:   w.state.Replaced,
		Refused:    w.state.Refused,
		MaxBackoff: w.o.MaxBackoff,
		Now:        time.Now(),

		Interrupted: interrupted,
	}, nil
}

// graceLimits returns the limits of the pod's grace periods that apply now. A shutdown of the machine
// terminates a pod that is not desired any more with the priority of its last manifest.
func (w *worker) graceLimits(seen pod.Observed) plan.GraceLimits {
	limits := plan.GraceLimits{Override: w.state.MaxGrace}
	select {
	case <-w.o.Hurry:
		limits.AtOnce = true
	default:
	}
	h := w.shared.halt.Load()
	w.mailbox.heed(h)
	if h == nil {
		return limits
	}
	p := w.state.Pod
	if p == nil {
		p = w.manifests.Running(nil, seen)
	}
	if p == nil {
		p = &v1.Pod{} // its manifest is not known
	}
	if pod.Priority(p) < h.Below {
		limits.Shutdown, limits.Published = &h.Grace, w.o.Volumes.Published(p.UID)
	}
	return limits
}

// final reports that p, which is on the machine, has reached its final phase and is not run again.
func (w *worker) final(p *v1.Pod, seen pod.Observed) bool {
	interrupted, err := w.interrupted(p.UID)
	return err == nil && plan.Final(plan.Input{
		Pod:      p,
		Since:    w.since(p, seen),
		Observed: w.life.Instances.Monotonic(seen),
		Probed:   w.life.Results.Of(seen),
		Evicted:  w.measure.Why(),
		Boot:     w.o.Boot,
		Earlier:  w.state.Earlier,
		Now:      time.Now(),

		Interrupted: interrupted,
	})
}

// interrupted reports that the revision was cut off, as is recorded. What could not be recorded then is as soon as it
// can be: what serves the pod next must not take its exit codes for a result.
func (w *worker) interrupted(uid pod.UID) (bool, error) {
	recorded, err := w.o.Data.Interrupted(uid)
	if err != nil || recorded || w.state.CutOff != uid {
		return recorded, err
	}
	if w.o.Data.Interrupt(uid) == nil {
		w.state.CutOff = ""
	}
	return true, nil
}

// since returns when p's revision began, as a monotonic time of this process. What runs only since this boot is not
// older than that, whatever the clock was when it began.
func (w *worker) since(p *v1.Pod, seen pod.Observed) time.Time {
	recorded, _ := time.Parse(time.RFC3339Nano, p.Annotations[manifest.AnnotationSeen])
	since := w.life.Instances.Since(p.UID, recorded)
	ofBoot := func(s pod.Sandbox) bool { return s.UID == p.UID && s.Boot == w.o.Boot }
	ofEarlier := func(c pod.Container) bool { return c.UID == p.UID && c.Boot != w.o.Boot }
	if since.Before(w.o.Booted) && slices.ContainsFunc(seen.Sandboxes, ofBoot) &&
		!slices.ContainsFunc(slices.Concat(seen.Containers, seen.Remembered), ofEarlier) {
		return w.o.Booted
	}
	return since
}

// reserve records whether the worker's pod is on the machine.
func (w *worker) reserve(seen pod.Observed) {
	there := isThere(seen)
	switch {
	case !there && !w.held:
		w.shared.resources.Release(w.key)
	case w.isReserved(seen):
		w.shared.resources.Hold(w.key, plan.Requests(w.state.Pod))
	} // a pod that is being terminated, or a former revision of it, keeps its reservation
	w.held = w.held || there
}

// yield gives back the reservation of a pod that was on the machine and that nothing is left of. It keeps that for its
// next revision or sandbox, which nobody else is to come before, unless p says that this waits for something other than
// its own: who waits for others keeps nobody waiting.
func (w *worker) yield(seen pod.Observed, p plan.Plan) {
	if !w.held || isThere(seen) {
		return
	}
	waits := p.Never != nil || p.Failure != nil && p.Failure.Lacks() == ""
	if w.state.Pod == nil || p.Completed || waits || !w.shared.resources.Keep(w.key, plan.Requests(w.state.Pod)) {
		w.held = false
		w.shared.resources.Release(w.key)
	}
}

// isThere reports that something is on the machine: a sandbox, or an instance that runs or whose state is
// unknown.
func isThere(seen pod.Observed) bool {
	return len(seen.Sandboxes) > 0 || slices.ContainsFunc(seen.Containers, func(c pod.Container) bool {
		return c.State == pod.Running || c.State == pod.Unknown
	})
}

// isReserved reports that the wanted revision is on the machine, and so has its reservation.
func (w *worker) isReserved(seen pod.Observed) bool {
	if w.state.Pod == nil {
		return false
	}
	mine, _ := seen.Split(w.state.Pod.UID)
	return isThere(mine)
}

// machine returns what the machine has and what other pods have requested, if the worker's pod needs resources.
func (w *worker) machine(seen pod.Observed) (m plan.Machine) {
	if w.state.Pod == nil {
		return m
	}
	requests, resized := plan.Requests(w.state.Pod), w.state.Resized != nil
	if resized || len(requests) > 0 {
		m = w.shared.resources.Machine(w.key, w.mailbox, requests, resized || !w.isReserved(seen))
	}
	m.CPUs = w.shared.resources.CPUs(w.mailbox, seen.SandboxID(w.state.Pod.UID), w.state.Pod)
	return m
}

// after returns the pods that the worker's pod still has to wait for.
func (w *worker) after() []pod.Key {
	if w.state.Pod == nil {
		return nil
	}
	return w.shared.order.Missing(w.mailbox, pod.After(w.state.Pod))
}
