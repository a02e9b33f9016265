package reconcile_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/fake"
)

// fullResults cannot record that a pod is interrupted, and says which results were stored.
type fullResults struct {
	runtime.Data
	results *[]pod.UID
}

func (d fullResults) Interrupt(pod.UID) error { return fmt.Errorf("writing: %w", unix.ENOSPC) }

func (d fullResults) SaveResult(ctx context.Context, uid pod.UID) error {
	*d.results = append(*d.results, uid)
	return d.Data.SaveResult(ctx, uid)
}

// TestStoppedOnAFullDisk: what fills the disk is stopped, also if nothing can be recorded. That it exits with 0 then is
// no result.
func TestStoppedOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"a:1": {}})
		rt.ExitOnTerm("a", 0)
		ever := newPod("ever", "u1", v1.RestartPolicyOnFailure, "a")
		ever.Annotations[plan.AnnotationRunPolicy] = plan.RunOnceEver
		var results []pod.UID
		h := start(t, rt, func(o *reconcile.Options) { o.Data, o.Stops = fullResults{o.Data, &results}, true })
		defer h.stop()
		h.want(ever)
		after(time.Minute)
		h.wantLiving("u1-a-0")
		h.want()
		after(time.Minute)
		h.wantLiving("")
		if len(results) > 0 {
			t.Errorf("results of %v were stored", results)
		}
	})
}
