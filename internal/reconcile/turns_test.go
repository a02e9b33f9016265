package reconcile_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/fake"
)

// turns are those at one pod. Another podrun has the first one, whenever that is wanted.
type turns struct {
	mu        sync.Mutex
	another   func()
	count     int64
	at        bool
	forgotten bool
}

func (o *turns) Begun(pod.Key) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.count
}

func (o *turns) Take(_ context.Context, _ pod.Key, since int64) (func() int64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.another != nil {
		o.another()
		o.another = nil
		o.count += 2
	}
	if since != o.count {
		return nil, nil
	}
	o.count++
	o.at = true
	return func() int64 {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.at = false
		o.count++
		return o.count
	}, nil
}

func (o *turns) Forget(pod.Key) { o.forgotten = true }

// TestAnotherPodrun: what another podrun has done to the pod since it was looked at is not done again. A job that it has
// begun is followed to its end, and nothing is done out of turn.
func TestAnotherPodrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"a:1": {Run: time.Minute}})
		job := newPod("job", "u1", v1.RestartPolicyNever, "a")
		others := &turns{another: func() {
			for _, err := range []error{
				rt.SavePod(job, "once"), rt.CreateSandbox(t.Context(), job, 0),
				rt.StartContainer(t.Context(), runtime.Start{Pod: job, Container: &job.Spec.Containers[0], Sandbox: pod.Sandbox{ID: "u1-sandbox-0"}, Image: pod.Image{Name: "a:1"}}),
			} {
				if err != nil {
					t.Error(err)
				}
			}
		}}
		h := start(t, rt, func(o *reconcile.Options) { o.Turns = others })
		h.want(job)
		h.wantLiving("u1-a-0")
		after(2 * time.Minute)
		if p := h.board.get("job"); p.Status.Phase != v1.PodSucceeded {
			t.Errorf("shown as %s", p.Status.Phase)
		}
		starts := 0
		for _, call := range rt.Calls() {
			if strings.HasPrefix(call, "StartContainer") || strings.HasPrefix(call, "CreateSandbox") {
				starts++
			}
		}
		if starts != 2 {
			t.Errorf("calls: %q", rt.Calls())
		}
		h.want()
		after(time.Second)
		h.stop()
		if !others.forgotten || others.at || !slices.ContainsFunc(rt.Calls(), func(c string) bool { return strings.HasPrefix(c, "RemoveData") }) {
			t.Errorf("forgotten %t, still at it %t", others.forgotten, others.at)
		}
	})
}
