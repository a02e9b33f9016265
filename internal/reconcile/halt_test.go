package reconcile_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

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
