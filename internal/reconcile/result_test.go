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

func (d fullResults) SaveResult(uid pod.UID) error {
	*d.results = append(*d.results, uid)
	return d.Data.SaveResult(uid)
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

// filledDisk is full until the pod's emptyDir volumes, which fill it, are removed.
type filledDisk struct {
	runtime.Data
	runtime.Containers
	free    *bool
	results *int
}

func (d filledDisk) full() error {
	if *d.free {
		return nil
	}
	return fmt.Errorf("writing: %w", unix.ENOSPC)
}

func (d filledDisk) RemoveEmptyDirs(ctx context.Context, uid pod.UID) error {
	*d.free = true
	return d.Data.RemoveEmptyDirs(ctx, uid)
}

func (d filledDisk) ReapContainer(ctx context.Context, id, message string) error {
	if err := d.full(); err != nil {
		return err
	}
	return d.Containers.ReapContainer(ctx, id, message)
}

func (d filledDisk) SaveResult(uid pod.UID) error {
	if err := d.full(); err != nil {
		return err
	}
	*d.results++
	return d.Data.SaveResult(uid)
}

// TestRemovedFromADiskThatItFills: a pod is removed although the disk, which it has filled itself, has no space to record
// anything. The result of one that had completed before is stored all the same.
func TestRemovedFromADiskThatItFills(t *testing.T) {
	for name, completed := range map[string]bool{"runs": false, "completed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				script := fake.Script{}
				if completed {
					script.Run = time.Second
				}
				rt := runtimeWith(map[string]fake.Script{"a:1": script})
				p := newPod("fills", "u1", v1.RestartPolicyOnFailure, "a")
				p.Annotations[plan.AnnotationRunPolicy] = plan.RunOnceEver
				free, results := true, 0
				disk := filledDisk{free: &free, results: &results}
				h := start(t, rt, func(o *reconcile.Options) {
					disk.Data, disk.Containers = o.Data, o.Containers
					o.Data, o.Containers, o.Stops = disk, disk, completed
				})
				defer h.stop()
				h.want(p)
				after(time.Minute)
				free = false
				h.want()
				after(10 * time.Minute)
				if all, err := rt.List(t.Context()); err != nil || len(all) > 0 {
					t.Errorf("%v is left: %v", all, err)
				}
				if wanted := map[bool]int{true: 1}[completed]; results != wanted {
					t.Errorf("%d results were stored", results)
				}
			})
		})
	}
}
