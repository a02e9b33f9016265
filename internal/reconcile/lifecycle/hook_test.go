package lifecycle_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/probe"
	"podrun.io/podrun/internal/reconcile/lifecycle"
	"podrun.io/podrun/internal/reconcile/revision"
)

// prober records what is to be probed, and fails the test when a hook runs.
type prober struct {
	t       *testing.T
	targets []probe.Target
}

func (p *prober) Set(_ pod.Key, targets []probe.Target) { p.targets = targets }

func (p *prober) Results(pod.Key) map[string]pod.Probed { return nil }

func (p *prober) Hook(_ context.Context, t probe.Target, _ *v1.LifecycleHandler) error {
	p.t.Errorf("a hook runs in %s", t.ID)
	return nil
}

// TestAnotherManifestUnderTheUID: the hooks and probes of a manifest are not those of an instance that another one
// has left under the same UID. Such an instance keeps the probes that it has, and one without any is not ready.
func TestAnotherManifestUnderTheUID(t *testing.T) {
	t.Parallel()
	web := func() *v1.Pod {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}}}}
		p.Name, p.UID = "web", "u1"
		return p
	}
	exec := v1.ExecAction{Command: []string{"x"}}
	next := web()
	next.Spec.Containers[0].LivenessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &exec}}
	first := web()
	first.Spec.Containers[0].ReadinessProbe = next.Spec.Containers[0].LivenessProbe
	next.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &exec}}
	for name, tt := range map[string]struct{ probed, due bool }{
		"probed by its own": {probed: true}, "not probed yet": {}, "with a hook": {due: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := &prober{t: t}
			var hooks sync.WaitGroup
			l := lifecycle.New(lifecycle.Options{
				Prober: asked, Wall: time.Now, Goroutines: &hooks, Log: slog.New(slog.DiscardHandler),
			})
			seen := pod.Observed{Containers: []pod.Container{{
				ID: "u1-a-0", Name: "a", UID: "u1", State: pod.Running, Notes: pod.Notes{PostStartDue: tt.due},
			}}}
			var s revision.State
			if tt.probed {
				s.Pod = first
				l.Hooks.Start(t.Context(), s, seen)
			}
			s.Pod, s.Replaced = next, true
			l.Hooks.Start(t.Context(), s, seen)
			for _, target := range asked.targets {
				if target.Pod != first {
					t.Errorf("%s is probed by another manifest", target.ID)
				}
			}
			if n := len(asked.targets); (n == 1) != tt.probed {
				t.Errorf("%d instances are probed", n)
			}
			if l.Hooks.Ready(seen)["u1-a-0"] {
				t.Error("it is ready")
			}
			l.Hooks.Stop()
			hooks.Wait()
		})
	}
}
