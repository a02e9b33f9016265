package lifecycle

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/probe"
	"podrun.io/podrun/internal/reconcile/record"
	"podrun.io/podrun/internal/reconcile/revision"
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

// HookResult is the result of a hook.
type HookResult struct {
	of  *hook
	err error
}

// hookSet is the hooks of one pod.
type hookSet struct {
	// post and pre are the postStart and preStop hooks by instance ID.
	post, pre map[string]*hook
}

func newHookSet() *hookSet {
	return &hookSet{post: map[string]*hook{}, pre: map[string]*hook{}}
}

// postStartLeft reports that an instance's postStart hook has not finished.
func (h *hookSet) postStartLeft(c pod.Container) bool {
	post := h.post[c.ID]
	return c.Notes.PostStartDue && (post == nil || !post.done)
}

// cancel cancels the hooks of an instance that has exited.
func (h *hookSet) cancel(id string) {
	for _, all := range []map[string]*hook{h.post, h.pre} {
		if all[id] != nil {
			all[id].cancel()
		}
	}
}

// prune cancels and removes the hooks of instances that no longer exist.
func (h *hookSet) prune(there []pod.Container) {
	for _, all := range []map[string]*hook{h.post, h.pre} {
		for id, hook := range all {
			if !slices.ContainsFunc(there, func(c pod.Container) bool { return c.ID == id }) {
				hook.cancel()
				delete(all, id)
			}
		}
	}
}

// Hooks runs the hooks of one pod's instances and tells the prober which instances to probe.
type Hooks struct {
	results    *Results
	notes      *Notes
	manifests  *revision.Manifests
	recorder   *record.Recorder
	probeIP    func() string
	log        *slog.Logger
	goroutines *sync.WaitGroup
	// Done delivers the hooks that have finished, for Finished.
	Done    chan HookResult
	targets []probe.Target // the last targets given to the prober
}

// Cancel cancels the hooks of an instance that has exited.
func (r *Hooks) Cancel(id string) { r.results.hooks.cancel(id) }

// Stop stops all probes and hooks.
func (r *Hooks) Stop() {
	r.targets = nil
	r.results.prober.Set(r.results.key, nil)
	r.results.hooks.prune(nil)
}

// Start starts the postStart hooks that are due, including those that an earlier podrun process did
// not see finish, and sets which instances are probed.
func (r *Hooks) Start(ctx context.Context, s revision.State, seen pod.Observed) {
	r.results.hooks.prune(seen.Containers)
	var targets []probe.Target
	if s.Pod != nil {
		mine, _ := seen.Split(s.Pod.UID)
		for i := range mine.Containers {
			c := &mine.Containers[i]
			spec := pod.FindContainer(s.Pod, c.Name)
			// What another manifest has left under the same UID has other hooks and probes.
			if spec == nil || c.State == pod.Created || s.Unwants(*c) {
				continue
			}
			switch h := r.results.hooks.post[c.ID]; {
			case h == nil && r.postStartDue(spec, c):
				h := &hook{id: c.ID, container: c.Name}
				r.run(ctx, h, r.target(s.Pod, spec, seen, c), spec.Lifecycle.PostStart)
			case h != nil && h.done && !h.recorded:
				h.recorded = true
				r.notes.Save(s, seen, c.ID)
			}
			probed := spec.StartupProbe != nil || spec.LivenessProbe != nil || spec.ReadinessProbe != nil
			if h := r.results.hooks.post[c.ID]; probed && (h == nil || h.done) {
				targets = append(targets, r.target(s.Pod, spec, seen, c))
			}
		}
	}
	r.targets = append(targets, r.leftover(seen, targets)...)
	r.results.prober.Set(r.results.key, r.targets)
}

// postStartDue reports that an instance's postStart hook must be run. An instance that is being
// terminated gets none.
func (r *Hooks) postStartDue(spec *v1.Container, c *pod.Container) bool {
	return spec.Lifecycle != nil && spec.Lifecycle.PostStart != nil && c.State == pod.Running &&
		c.Notes.PostStartDue && c.Notes.Failed == nil && !r.results.instances.terminating(c.ID)
}

// leftover returns the running targets of the last call that are not in now because their revision
// is no longer desired. While such an instance terminates its readiness is still probed, as by the
// kubelet.
func (r *Hooks) leftover(seen pod.Observed, now []probe.Target) (left []probe.Target) {
	for _, t := range r.targets {
		if slices.ContainsFunc(now, func(n probe.Target) bool { return n.ID == t.ID }) {
			continue
		}
		if slices.ContainsFunc(seen.Containers, func(c pod.Container) bool {
			return c.ID == t.ID && c.State == pod.Running
		}) {
			if r.results.instances.terminating(t.ID) {
				t.Extent = probe.Readiness
			}
			left = append(left, t)
		}
	}
	return left
}

func (r *Hooks) target(p *v1.Pod, spec *v1.Container, seen pod.Observed, c *pod.Container) probe.Target {
	t := probe.Target{
		ID:        c.ID,
		Pod:       p,
		Container: spec,
		StartedAt: r.results.instances.clock.monotonic(c.ID, c.StartedAt),
		Extent:    probe.Everything,
		Saved: pod.Probed{
			Started: c.Notes.Started,
			Ready:   c.Notes.Ready,
			Since:   r.results.instances.clock.monotonic(c.ID, c.Notes.Since),
		},
	}
	switch {
	case c.State == pod.Exited:
		t.Extent = probe.Nothing
	case r.results.instances.terminating(c.ID):
		t.Extent = probe.Readiness
	}
	for _, s := range seen.Sandboxes {
		if s.ID == c.SandboxID && len(s.IPs) > 0 {
			t.Address = s.IPs[0]
		}
	}
	if p.Spec.HostNetwork {
		t.Address = r.probeIP()
	}
	return t
}

// run runs a hook in its own goroutine.
func (r *Hooks) run(ctx context.Context, h *hook, t probe.Target, action *v1.LifecycleHandler) {
	hctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	h.cancel = cancel
	if h.pre {
		r.results.hooks.pre[h.id] = h
	} else {
		r.results.hooks.post[h.id] = h
	}
	r.goroutines.Go(func() {
		defer cancel()
		err := r.results.prober.Hook(hctx, t, action)
		select {
		case r.Done <- HookResult{of: h, err: err}:
		case <-hctx.Done():
		}
	})
}

// Finished stores the result of a hook, unless the hook has been cancelled meanwhile.
func (r *Hooks) Finished(result HookResult) {
	h := result.of
	if r.results.hooks.post[h.id] != h && r.results.hooks.pre[h.id] != h {
		return
	}
	h.done, h.at = true, time.Now()
	if h.pre {
		delete(r.results.hooks.pre, h.id)
		s := r.results.instances.signalled[h.id]
		s.Hooked, s.Hooking = time.Now(), false
		r.results.instances.signalled[h.id] = s
	}
	if result.err == nil {
		return
	}
	reason := pod.ReasonPostStart
	if h.pre {
		reason = "FailedPreStopHook"
	}
	r.recorder.Record(h.container, record.Warning, reason, result.err.Error())
	r.log.Warn("lifecycle hook failed", "container", h.container, "reason", reason, "err", result.err)
	if !h.pre {
		h.failed = &pod.Failed{Why: reason, Message: result.err.Error()}
	}
}

// Ready returns by instance ID whether the instances of a pod that is being terminated for
// good are ready: the probe results, if there are any, and false once an instance has exited.
func (r *Hooks) Ready(seen pod.Observed) map[string]bool {
	ready, probed := map[string]bool{}, r.results.Of(seen)
	for _, t := range r.targets {
		ready[t.ID] = probed[t.ID].IsReady(t.Container)
	}
	for _, c := range seen.Containers {
		if c.State == pod.Exited {
			ready[c.ID] = false
		}
	}
	return ready
}

// PreStop starts an instance's preStop hook. The instance may belong to a revision that is no
// longer desired.
func (r *Hooks) PreStop(ctx context.Context, st revision.State, seen pod.Observed, a plan.RunPreStop) error {
	s := r.results.instances.signalled[a.ID]
	if s.Asked.IsZero() {
		s.Asked, s.Alone = time.Now(), !a.Yields
	}
	for i := range seen.Containers {
		c := &seen.Containers[i]
		if c.ID != a.ID {
			continue
		}
		p, spec, err := r.manifests.Started(st, c)
		if err != nil {
			r.log.Warn("preStop hook skipped", "container", c.Name, "err", err)
			s.Hooked = time.Now()
			break
		}
		// Saved before it runs: podrun may be killed while it does.
		s.Hooking, s.HookRuns = true, s.HookRuns+1
		r.results.instances.signalled[a.ID] = s
		r.notes.Save(st, seen, a.ID)
		r.run(ctx, &hook{id: c.ID, container: c.Name, pre: true}, r.target(p, spec, seen, c), spec.Lifecycle.PreStop)
		return nil
	}
	r.results.instances.signalled[a.ID] = s
	r.notes.Save(st, seen, a.ID)
	return nil
}
