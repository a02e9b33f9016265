package reconcile

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/probe"
)

// hook is a lifecycle hook of an instance, running or done. It runs in its own goroutine, so that
// the worker can serve the pod's other containers meanwhile and enforce the grace period.
type hook struct {
	id, container  string
	pre            bool
	cancel         context.CancelFunc
	done, recorded bool
	at             time.Time // when it finished
	failed         *pod.Failed
}

type hookResult struct {
	of  *hook
	err error
}

// hooks are the hooks of one worker.
type hooks struct {
	// post and pre are the postStart and preStop hooks by instance ID.
	post, pre map[string]*hook
}

func newHooks() hooks {
	return hooks{post: map[string]*hook{}, pre: map[string]*hook{}}
}

// end cancels the hooks of an instance that has exited.
func (h *hooks) end(id string) {
	for _, all := range []map[string]*hook{h.post, h.pre} {
		if all[id] != nil {
			all[id].cancel()
		}
	}
}

// keep cancels and removes the hooks of instances that no longer exist.
func (h *hooks) keep(there []pod.Container) {
	for _, all := range []map[string]*hook{h.post, h.pre} {
		for id, hook := range all {
			if !slices.ContainsFunc(there, func(c pod.Container) bool { return c.ID == id }) {
				hook.cancel()
				delete(all, id)
			}
		}
	}
}

// probe starts the postStart hooks that are due, including those that an earlier podrun process did
// not see finish, and sets which instances are probed.
func (w *worker) probe(ctx context.Context, seen pod.Observed) {
	w.hooks.keep(seen.Containers)
	var targets []probe.Target
	if w.state.pod != nil {
		mine, _ := seen.Split(w.state.pod.UID)
		for i := range mine.Containers {
			c := &mine.Containers[i]
			spec := container(w.state.pod, c.Name)
			if spec == nil || c.State == pod.Created {
				continue
			}
			switch h := w.hooks.post[c.ID]; {
			case h == nil && w.postStartDue(spec, c):
				w.runHook(ctx, &hook{id: c.ID, container: c.Name},
					w.target(w.state.pod, spec, seen, c), spec.Lifecycle.PostStart)
			case h != nil && h.done && !h.recorded:
				h.recorded = true
				w.note(seen, c.ID)
			}
			probed := spec.StartupProbe != nil || spec.LivenessProbe != nil || spec.ReadinessProbe != nil
			if h := w.hooks.post[c.ID]; probed && (h == nil || h.done) {
				targets = append(targets, w.target(w.state.pod, spec, seen, c))
			}
		}
	}
	w.targets = append(targets, w.leftover(seen, targets)...)
	w.o.Prober.Set(w.key, w.targets)
}

// postStartDue reports that an instance's postStart hook must be run. An instance that is being
// terminated gets none.
func (w *worker) postStartDue(spec *v1.Container, c *pod.Container) bool {
	return spec.Lifecycle != nil && spec.Lifecycle.PostStart != nil && c.State == pod.Running &&
		c.Notes.PostStartDue && c.Notes.Failed == nil && w.signalled[c.ID] == (pod.Signals{})
}

// postStartLeft reports that an instance's postStart hook has not finished.
func (w *worker) postStartLeft(c pod.Container) bool {
	h := w.hooks.post[c.ID]
	return c.Notes.PostStartDue && (h == nil || !h.done)
}

// leftover returns the running targets of the last call that are not in now because their revision
// is no longer desired. While such an instance terminates its readiness is still probed, as by the
// kubelet.
func (w *worker) leftover(seen pod.Observed, now []probe.Target) (left []probe.Target) {
	for _, t := range w.targets {
		if slices.ContainsFunc(now, func(n probe.Target) bool { return n.ID == t.ID }) {
			continue
		}
		if slices.ContainsFunc(seen.Containers, func(c pod.Container) bool {
			return c.ID == t.ID && c.State == pod.Running
		}) {
			if w.signalled[t.ID] != (pod.Signals{}) {
				t.Extent = probe.Readiness
			}
			left = append(left, t)
		}
	}
	return left
}

func (w *worker) target(p *v1.Pod, spec *v1.Container, seen pod.Observed, c *pod.Container) probe.Target {
	t := probe.Target{
		ID:        c.ID,
		Pod:       p,
		Container: spec,
		StartedAt: w.clock.monotonic(c.ID, c.StartedAt),
		Extent:    probe.Everything,
		Saved: pod.Probed{
			Started: c.Notes.Started,
			Ready:   c.Notes.Ready,
			Since:   w.clock.monotonic(c.ID, c.Notes.Since),
		},
	}
	switch {
	case c.State == pod.Exited:
		t.Extent = probe.Nothing
	case w.signalled[c.ID] != (pod.Signals{}):
		t.Extent = probe.Readiness
	}
	for _, s := range seen.Sandboxes {
		if s.ID == c.SandboxID && len(s.IPs) > 0 {
			t.Address = s.IPs[0]
		}
	}
	if p.Spec.HostNetwork {
		t.Address = w.o.HostIP
	}
	return t
}

// probed returns the results of hooks and probes by instance ID.
func (w *worker) probed(seen pod.Observed) map[string]pod.Probed {
	found := w.o.Prober.Results(w.key)
	if found == nil && len(w.hooks.post) > 0 {
		found = map[string]pod.Probed{}
	}
	for id, h := range w.hooks.post {
		p := found[id]
		p.Starting = !h.done
		if h.at.After(p.Since) {
			p.Since = h.at
		}
		if h.failed != nil {
			p.Failed = h.failed
		}
		found[id] = p
	}
	for _, c := range seen.Containers {
		failed := c.Notes.Failed // as recorded by an earlier podrun process
		if renewed := w.renewed[c.ID]; renewed != nil {
			failed = renewed
		}
		if p := found[c.ID]; failed != nil && p.Failed == nil {
			p.Failed = failed
			if found == nil {
				found = map[string]pod.Probed{}
			}
			found[c.ID] = p
		}
	}
	for _, c := range seen.Containers {
		// A hook or probe that fails because its instance has exited says nothing about the
		// instance.
		if p, ok := found[c.ID]; ok && p.Failed != nil && w.endedByItself(c) {
			p.Failed = nil
			found[c.ID] = p
		}
	}
	return found
}

// endedByItself reports that an instance exited before its termination began.
func (w *worker) endedByItself(c pod.Container) bool {
	if c.State != pod.Exited {
		return false
	}
	ended, s := w.clock.monotonic(c.ID, c.FinishedAt), w.signals(c)
	for _, at := range []time.Time{s.Asked, s.Killed} {
		if !at.IsZero() && !ended.Before(at) {
			return false
		}
	}
	return true
}

// runHook runs a hook in its own goroutine.
func (w *worker) runHook(ctx context.Context, h *hook, t probe.Target, action *v1.LifecycleHandler) {
	hctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	h.cancel = cancel
	if h.pre {
		w.hooks.pre[h.id] = h
	} else {
		w.hooks.post[h.id] = h
	}
	w.beside.Go(func() {
		defer cancel()
		err := w.o.Prober.Hook(hctx, t, action)
		select {
		case w.hooked <- hookResult{of: h, err: err}:
		case <-hctx.Done():
		}
	})
}

// keepHook stores the result of a hook, unless the hook has been cancelled meanwhile.
func (w *worker) keepHook(r hookResult) {
	h := r.of
	if w.hooks.post[h.id] != h && w.hooks.pre[h.id] != h {
		return
	}
	h.done, h.at = true, time.Now()
	if h.pre {
		delete(w.hooks.pre, h.id)
		s := w.signalled[h.id]
		s.Hooked, s.Hooking = time.Now(), false
		w.signalled[h.id] = s
	}
	if r.err == nil {
		return
	}
	reason := pod.ReasonPostStart
	if h.pre {
		reason = "FailedPreStopHook"
	}
	w.recorder.record(h.container, warning, reason, r.err.Error())
	w.log.Warn("lifecycle hook failed", "container", h.container, "reason", reason, "err", r.err)
	if !h.pre {
		h.failed = &pod.Failed{Why: reason, Message: r.err.Error()}
	}
}

// readyStill returns by instance ID whether the instances of a pod that is being terminated for
// good are ready: the probe results, if there are any, and false once an instance has exited.
func (w *worker) readyStill(seen pod.Observed) map[string]bool {
	ready, probed := map[string]bool{}, w.probed(seen)
	for _, t := range w.targets {
		ready[t.ID] = probed[t.ID].IsReady(t.Container)
	}
	for _, c := range seen.Containers {
		if c.State == pod.Exited {
			ready[c.ID] = false
		}
	}
	return ready
}

// preStop starts an instance's preStop hook. The instance may belong to a revision that is no
// longer desired.
func (w *worker) preStop(ctx context.Context, seen pod.Observed, a plan.RunPreStop) error {
	s := w.signalled[a.ID]
	if s.Asked.IsZero() {
		s.Asked = time.Now()
	}
	for i := range seen.Containers {
		c := &seen.Containers[i]
		if c.ID != a.ID {
			continue
		}
		p, spec, err := w.manifests.started(w.state, c)
		if err != nil {
			w.log.Warn("preStop hook skipped", "container", c.Name, "err", err)
			s.Hooked = time.Now()
			break
		}
		s.Hooking = true
		w.runHook(ctx, &hook{id: c.ID, container: c.Name, pre: true},
			w.target(p, spec, seen, c), spec.Lifecycle.PreStop)
	}
	w.signalled[a.ID] = s
	w.note(seen, a.ID)
	return nil
}
