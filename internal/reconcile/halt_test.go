package reconcile_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
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

// TestShutdownEndsAHungStart: the start of a container hangs when the machine shuts down. The pod's other container is asked
// to end all the same.
func TestShutdownEndsAHungStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		halt, v := make(chan reconcile.Halt), hungVolumes{hangs: &atomic.Bool{}}
		h := start(t, forever(), func(o *reconcile.Options) { o.Halt, o.Volumes = halt, v })
		defer h.stop()
		h.want(newPod("web", "u1", v1.RestartPolicyAlways, "a", "b"))
		h.wantLiving("u1-a-0 u1-b-0")
		v.hangs.Store(true)
		h.rt.Exit("u1-b-0", 1)
		after(time.Second)
		h.wantLiving("u1-a-0")
		halt <- reconcile.Halt{Below: math.MaxInt64, Grace: 10 * time.Second}
		after(2 * time.Second)
		h.wantLiving("")
		v.hangs.Store(false)
		halt <- reconcile.Halt{Below: math.MinInt64}
		after(time.Minute)
		h.wantLiving("u1-a-1 u1-b-1")
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

// TestShutdownInterrupts: podrun is killed after each of its changes while the machine shuts down, and the machine starts
// again. A pod of a Job, or one that runs once ever, has failed when it was asked to end, although it then exits with code
// 0. That is recorded before it is asked. It does not run again, unless it has the restartPolicy OnFailure and no Job,
// which has another pod.
func TestShutdownInterrupts(t *testing.T) {
	for _, c := range []struct {
		workload  string
		policy    v1.RestartPolicy
		runsAgain bool
	}{
		{"Job/work", v1.RestartPolicyNever, false},
		{"Job/work", v1.RestartPolicyOnFailure, false},
		{"", v1.RestartPolicyNever, false},
		{"", v1.RestartPolicyOnFailure, true},
	} {
		for n, done := 0, false; !done; n++ {
			t.Run(fmt.Sprintf("%s %s, killed after %d", c.workload, c.policy, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					work := newPod("work", "u1", c.policy, "a")
					work.Annotations[pod.AnnotationWorkload] = c.workload
					work.Annotations[plan.AnnotationRunPolicy] = plan.RunOnceEver
					done = shutDownCut(t, work, n, c.runsAgain)
				})
			})
		}
	}
}

// shutDownCut runs a case of TestShutdownInterrupts, and reports whether podrun was not killed.
func shutDownCut(t *testing.T, work *v1.Pod, n int, runsAgain bool) (done bool) {
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
		t.Errorf("asked %v, recorded %v", asked, recorded)
	}
	rt.Reboot("boot-2")
	h = start(t, rt, func(o *reconcile.Options) { o.Boot = "boot-2" })
	defer h.stop()
	h.want(work)
	after(time.Minute)
	switch {
	case !recorded && work.Spec.RestartPolicy == v1.RestartPolicyOnFailure: // as if the power had gone
		h.wantLiving("u1-a-1")
		return done
	case recorded && runsAgain:
		h.wantLiving("u1-a-0")
		h.wantPhase("work", v1.PodRunning)
		return done
	}
	h.wantLiving("")
	h.wantPhase("work", v1.PodFailed)
	if s := h.board.get("work").Status; recorded != (s.Reason == "Terminated") {
		t.Errorf("reason %s, recorded %v", s.Reason, recorded)
	}
	return done
}

// TestShutdownThatIsCancelled: a pod that a shutdown has interrupted runs again after that, if it may, also under the next
// podrun. One that had completed does not.
func TestShutdownThatIsCancelled(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprint("restarted ", restarted), func(t *testing.T) { shutDownCancelled(t, restarted) })
	}
}

func shutDownCancelled(t *testing.T, restarted bool) {
	synctest.Test(t, func(t *testing.T) {
		rt, halt := forever(), make(chan reconcile.Halt)
		rt.ExitOnTerm("a", 0)
		h := start(t, rt, func(o *reconcile.Options) { o.Halt = halt })
		defer func() { h.stop() }()
		var all []*v1.Pod
		for i, policy := range []v1.RestartPolicy{v1.RestartPolicyNever, v1.RestartPolicyOnFailure, v1.RestartPolicyAlways} {
			p := newPod(strings.ToLower(string(policy)), pod.UID(fmt.Sprint("u", i+1)), policy, "a")
			p.Annotations[plan.AnnotationRunPolicy] = plan.RunOnceEver
			plain := newPod("plain-"+p.Name, pod.UID(fmt.Sprint("v", i+1)), policy, "a")
			all = append(all, p, plain)
		}
		all = append(all, newPod("done", "v4", v1.RestartPolicyNever, "b"))
		h.want(all...)
		rt.Exit("v4-b-0", 0)
		synctest.Wait()
		h.wantLiving("u1-a-0 u2-a-0 u3-a-0 v1-a-0 v2-a-0 v3-a-0")
		h.wantPhase("done", v1.PodSucceeded)
		halt <- reconcile.Halt{Below: math.MaxInt64, Grace: 10 * time.Second}
		after(5 * time.Second)
		h.wantLiving("")
		h.wantPhase("never", v1.PodFailed)
		h.wantPhase("onfailure", v1.PodFailed)
		h.wantPhase("plain-never", v1.PodRunning)
		h.wantPhase("plain-onfailure", v1.PodRunning)
		h.wantPhase("plain-always", v1.PodRunning)
		if restarted {
			h.stop()
			h = start(t, rt)
			h.want(all...)
		} else {
			halt <- reconcile.Halt{Below: math.MinInt64}
		}
		after(time.Minute)
		h.wantLiving("u2-a-0 u3-a-1 v1-a-0 v2-a-0 v3-a-1")
		h.wantPhase("never", v1.PodFailed)
		h.wantPhase("done", v1.PodSucceeded)
	})
}

// TestDeadlineAfterAShutdown: a pod that runs again after a shutdown has the deadline that its manifest has by then.
func TestDeadlineAfterAShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, halt := forever(), make(chan reconcile.Halt)
		rt.ExitOnTerm("a", 0)
		h := start(t, rt, func(o *reconcile.Options) { o.Halt = halt })
		work := newPod("work", "u1", v1.RestartPolicyOnFailure, "a")
		work.Annotations[plan.AnnotationRunPolicy] = plan.RunOnceEver
		work.Spec.ActiveDeadlineSeconds = new(int64(60))
		h.want(work)
		h.wantLiving("u1-a-0")
		halt <- reconcile.Halt{Below: math.MaxInt64, Grace: 10 * time.Second}
		after(5 * time.Second)
		h.stop()
		rt.Reboot("boot-2")
		h = start(t, rt, func(o *reconcile.Options) { o.Boot = "boot-2" })
		defer h.stop()
		work = work.DeepCopy()
		work.Spec.ActiveDeadlineSeconds = new(int64(3600))
		h.want(work)
		after(5 * time.Minute)
		h.wantLiving("u1-a-0")
	})
}

// TestShutdownThatCannotBeRecorded: as long as it cannot be recorded that the shutdown interrupts a pod of a Job, the pod is
// not asked to end: its exit code could be taken for a success. A pod that begins anew after that does not wait.
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
		h.wantPhase("other", v1.PodRunning) // its exit code is no result, although that could not be recorded
		rt.Fail("Checkpoint", nil)
		after(10 * time.Second)
		h.wantLiving("")
		h.wantPhase("work", v1.PodFailed)
		if cut, err := rt.Interrupted("u2"); err != nil || !cut {
			t.Errorf("when it can be recorded: %v, %v", cut, err)
		}
		halt <- reconcile.Halt{Below: math.MinInt64}
		after(10 * time.Second)
		h.wantLiving("u2-b-0")
		halt <- reconcile.Halt{Below: math.MaxInt64, Grace: 20 * time.Second}
		after(10 * time.Second)
		if cut, err := rt.Interrupted("u2"); err != nil || !cut {
			t.Errorf("the second time: %v, %v", cut, err)
		}
	})
}

// TestStopAllEndsAHungStart: a start that hangs when serve is to stop its pods ends as it does without the manifest.
func TestStopAllEndsAHungStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := hungVolumes{hangs: &atomic.Bool{}}
		h := start(t, forever(), func(o *reconcile.Options) {
			o.Volumes, o.StopAll = v, func(time.Duration) bool { return true }
		})
		h.want(newPod("web", "u1", v1.RestartPolicyAlways, "a", "b"))
		v.hangs.Store(true)
		h.rt.Exit("u1-b-0", 1)
		after(time.Second)
		began := time.Now()
		h.stop()
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %v", took)
		}
		h.wantEmpty()
	})
}
