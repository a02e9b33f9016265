package reconcile_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
)

// TestMachineShutsDown: at a shutdown of the machine the pods are terminated in the order of their
// priority, each group within its time. Nothing of them is removed, no pod starts, and all run
// again if the shutdown is cancelled.
func TestMachineShutsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		halt := make(chan reconcile.Halt)
		h := start(t, forever(), func(o *reconcile.Options) { o.Halt = halt })
		defer h.stop()
		h.rt.IgnoreTerm("a")
		important := newPod("db", "u2", v1.RestartPolicyAlways, "b")
		important.Spec.PriorityClassName = "system-node-critical"
		h.want(web(), important)
		h.wantLiving("u1-a-0 u2-b-0")

		halt <- reconcile.Halt{Below: pod.CriticalPriority, Grace: 3 * time.Second}
		after(2 * time.Second)
		h.wantLiving("u1-a-0 u2-b-0") // it is asked, and has its time
		after(2 * time.Second)
		h.wantLiving("u2-b-0")
		halt <- reconcile.Halt{Below: math.MaxInt64, Grace: time.Second}
		synctest.Wait()
		h.wantLiving("") // this one obeyed
		h.want(web(), important, newPod("late", "u3", v1.RestartPolicyAlways, "b"))
		after(time.Hour)
		h.wantLiving("")
		for _, name := range []string{"web", "db"} {
			seen, err := h.rt.Inspect(t.Context(), pod.Key{Namespace: "default", Name: name})
			if err != nil || len(seen.Containers) != 1 || len(seen.Data) != 1 {
				t.Errorf("left of %s: %+v, %v", name, seen, err)
			}
			if s := h.board.get(name).Status.ContainerStatuses[0]; s.State.Running != nil {
				t.Errorf("status of %s: %+v", name, s)
			}
		}
		halt <- reconcile.Halt{Below: math.MinInt64}
		after(time.Minute)
		h.wantLiving("u1-a-1 u2-b-1 u3-b-0")
	})
}

// TestVolumesOfPodsAtAShutdown: a pod of which nothing runs gives its volumes back while the drivers run. It has its
// sandbox as before, so that it comes before others when the machine is back.
func TestVolumesOfPodsAtAShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		halt := make(chan reconcile.Halt)
		var ended []pod.UID
		h := start(t, forever(), func(o *reconcile.Options) { o.Halt, o.Volumes = halt, endedVolumes{ended: &ended} })
		defer h.stop()
		driver := newPod("driver", "u2", v1.RestartPolicyAlways, "b")
		driver.Spec.PriorityClassName = "system-node-critical"
		h.want(web(), driver)
		h.wantLiving("u1-a-0 u2-b-0")
		halt <- reconcile.Halt{Below: pod.CriticalPriority, Grace: 3 * time.Second}
		after(2 * time.Second)
		h.wantLiving("u2-b-0")
		seen, err := h.rt.Inspect(t.Context(), pod.Key{Namespace: "default", Name: "web"})
		if len(ended) != 1 || ended[0] != "u1" || err != nil || len(seen.Sandboxes) != 1 {
			t.Errorf("released %v, left: %+v, %v", ended, seen, err)
		}
	})
}

// TestShutdownBoundsWhatIsNotWanted: a pod whose manifest was removed just before has no more time
// than the others of its priority.
func TestShutdownBoundsWhatIsNotWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		halt := make(chan reconcile.Halt)
		h := start(t, forever(), func(o *reconcile.Options) { o.Halt = halt })
		defer h.stop()
		h.rt.IgnoreTerm("a")
		h.rt.IgnoreTerm("b")
		important := newPod("db", "u2", v1.RestartPolicyAlways, "b")
		important.Spec.PriorityClassName = "system-node-critical"
		h.want(web(), important)
		h.wantLiving("u1-a-0 u2-b-0")
		h.want()
		after(time.Second)
		h.wantLiving("u1-a-0 u2-b-0")
		halt <- reconcile.Halt{Below: pod.CriticalPriority, Grace: 3 * time.Second}
		after(4 * time.Second)
		h.wantLiving("u2-b-0")
		halt <- reconcile.Halt{Below: math.MaxInt64, Grace: 3 * time.Second}
		after(time.Second)
		h.wantLiving("")
	})
}

// TestShutdownInterruptsAJobsPod: podrun is killed after each of its changes while the machine shuts down, and the machine
// starts again. A pod of a Job that was asked to end has failed, although it then exits with code 0, and it does not run
// again. That is recorded before it is asked.
func TestShutdownInterruptsAJobsPod(t *testing.T) {
	for _, policy := range []v1.RestartPolicy{v1.RestartPolicyNever, v1.RestartPolicyOnFailure} {
		for n, done := 0, false; !done; n++ {
			synctest.Test(t, func(t *testing.T) {
				work := newPod("work", "u1", policy, "a")
				work.Annotations[pod.AnnotationWorkload] = "Job/work"
				work.Annotations[plan.AnnotationRunPolicy] = plan.RunOnceEver
				rt, halt := forever(), make(chan reconcile.Halt)
				rt.ExitOnTerm("a", 0)
				h := start(t, rt, func(o *reconcile.Options) { o.Halt = halt })
				h.want(work)
				h.wantLiving("u1-a-0")
				rt.CutAfter(n)
				halt <- reconcile.Halt{Below: math.MaxInt64, Grace: 10 * time.Second}
				after(5 * time.Second)
				if done = rt.Left() > 0; done {
					h.wantPhase("work", v1.PodFailed)
				}
				h.stop()
				rt.CutAfter(-1)
				recorded, err := rt.Interrupted("u1")
				if err != nil {
					t.Error(err)
				}
				asked := slices.ContainsFunc(rt.Calls(), func(c string) bool { return strings.HasPrefix(c, "SignalContainer") })
				if asked && !recorded || done && !asked {
					t.Errorf("%s, killed after %d: asked %v, recorded %v", policy, n, asked, recorded)
				}
				rt.Reboot("boot-2")
				h = start(t, rt, func(o *reconcile.Options) { o.Boot = "boot-2" })
				defer h.stop()
				h.want(work)
				after(time.Minute)
				if !recorded && policy == v1.RestartPolicyOnFailure { // as if the power had gone
					h.wantLiving("u1-a-1")
					return
				}
				h.wantLiving("")
				h.wantPhase("work", v1.PodFailed)
				if s := h.board.get("work").Status; recorded != (s.Reason == "Terminated") {
					t.Errorf("%s, killed after %d: %s, recorded %v", policy, n, s.Reason, recorded)
				}
			})
		}
	}
}

// TestShutdownThatCannotBeRecorded: as long as it cannot be recorded that the shutdown interrupts a pod of a Job, the pod is
// not asked to end: its exit code could be taken for a success.
func TestShutdownThatCannotBeRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work := newPod("work", "u1", v1.RestartPolicyNever, "a")
		work.Annotations[pod.AnnotationWorkload] = "Job/work"
		rt, halt := forever(), make(chan reconcile.Halt)
		rt.ExitOnTerm("a", 0)
		h := start(t, rt, func(o *reconcile.Options) { o.Halt = halt })
		defer h.stop()
		h.want(work, newPod("other", "u2", v1.RestartPolicyNever, "b"))
		h.wantLiving("u1-a-0 u2-b-0")
		rt.Fail("Checkpoint", errors.New("no space"))
		halt <- reconcile.Halt{Below: math.MaxInt64, Grace: 20 * time.Second}
		after(5 * time.Second)
		h.wantLiving("u1-a-0")
		rt.Fail("Checkpoint", nil)
		after(10 * time.Second)
		h.wantLiving("")
		h.wantPhase("work", v1.PodFailed)
	})
}
