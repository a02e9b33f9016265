package reconcile_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/runtime/fake"
)

// The cases of this file were found by the simulation of package agent.

// TestNothingIsDoneUninspected: a wakeup of a worker whose pod could not be inspected does not make
// it act on an earlier observation.
func TestNothingIsDoneUninspected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"a:1": {}})
		away := errors.New("no answer")
		rt.Fail("InspectContainers", away)
		rt.Fail("ListContainers", away)
		h := start(t, rt)
		defer h.stop()
		p := web()
		h.want(p)
		h.want(p.DeepCopy())
		if got := callsOf(rt, "CreateSandbox "); len(got) > 0 {
			t.Errorf("%q of a pod of which nothing is known", got)
		}
		rt.Fail("InspectContainers", nil)
		rt.Fail("ListContainers", nil)
		after(time.Minute)
		h.wantLiving("u1-a-0")
	})
}

// TestHookOfACompletedContainer: a postStart hook that fails because its container has completed
// does not make the completion a failure.
func TestHookOfACompletedContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"a:1": {Run: 2 * time.Second}, "b:1": {Run: time.Minute}})
		rt.OnExec(func(context.Context, string, []string) (int, error) {
			time.Sleep(2100 * time.Millisecond)
			return 137, nil
		})
		h := start(t, rt)
		defer h.stop()
		p := newPod("job", "u1", v1.RestartPolicyOnFailure, "a", "b")
		p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: execHook("hook")}
		h.want(p)
		after(2 * time.Minute)
		h.wantPhase("job", v1.PodSucceeded)
		if got := callsOf(rt, "StartContainer "); len(got) != 2 {
			t.Errorf("starts: %q", got)
		}
	})
}

// TestPreStopOfAReplacedManifest: an instance that is terminated because of another manifest with
// the same UID runs the hook that it was started with.
func TestPreStopOfAReplacedManifest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"a:1": {}, "a:2": {}})
		rt.OnExec(commands(map[string]func() int{"hook": always(0)}))
		h := start(t, rt)
		defer h.stop()
		p := web()
		p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: execHook("hook")}
		h.want(p)
		next := p.DeepCopy()
		next.Spec.Containers[0].Image, next.Spec.Containers[0].Lifecycle = "a:2", nil
		h.want(next)
		after(time.Minute)
		if n := len(execs(rt)); n != 1 {
			t.Errorf("the hook ran %d times", n)
		}
	})
}
