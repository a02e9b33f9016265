package reconcile_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/runtime/fake"
)

// busyVolumes are in use until something ends that is not podrun's.
type busyVolumes struct {
	noVolumes
	calls *int
	busy  *bool
}

func (v busyVolumes) Ended(context.Context, pod.UID) error {
	if *v.calls++; *v.busy {
		return errors.New("device or resource busy")
	}
	return nil
}

// TestVolumesThatAreBusyAtTheEnd: what a completed pod has mounted is released as soon as that works, also by the next
// podrun, and its result does not wait for that.
func TestVolumesThatAreBusyAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		rt.AddImage("a:1", fake.Script{Run: time.Second})
		calls, busy := 0, true
		var emptied []pod.UID
		with := func(o *reconcile.Options) {
			o.Volumes, o.Data = busyVolumes{calls: &calls, busy: &busy}, emptiedData{o.Data, &emptied}
		}
		job := newPod("job", "u1", v1.RestartPolicyNever, "a")
		h := start(t, rt, with)
		h.want(job)
		after(time.Hour)
		if p := h.board.get("job"); p == nil || p.Status.Phase != v1.PodSucceeded {
			t.Errorf("its result waits: %+v", p)
		}
		if calls < 100 || calls > 200 || len(emptied) > 0 {
			t.Errorf("tried %d times, emptied %v", calls, emptied)
		}
		h.stop()
		busy, calls = false, 0
		h = start(t, rt, with)
		defer h.stop()
		h.want(job)
		after(time.Minute)
		if calls != 1 || !slices.Equal(emptied, []pod.UID{"u1"}) || len(rt.SandboxIDs()) > 0 {
			t.Errorf("tried %d times, emptied %v, left %v", calls, emptied, rt.SandboxIDs())
		}
		if ran := rt.Ran(); len(ran) != 1 {
			t.Errorf("it ran as %v", ran)
		}
	})
}
