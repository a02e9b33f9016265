package reconcile_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

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
	runtime.Sandboxes
	*fill
}

type fill struct {
	free, emptied, marked, interrupted bool
	results                            int
}

func (f *fill) full() error {
	if f.free {
		return nil
	}
	return fmt.Errorf("writing: %w", unix.ENOSPC)
}

func (d filledDisk) RemoveEmptyDirs(ctx context.Context, uid pod.UID) error {
	d.free, d.emptied = true, true
	return d.Data.RemoveEmptyDirs(ctx, uid)
}

func (d filledDisk) Note(uid pod.UID, id string, n pod.Notes) error {
	if err := d.full(); err != nil {
		return err
	}
	d.marked = d.emptied && n.Unwanted
	return d.Data.Note(uid, id, n)
}

func (d filledDisk) ReapContainer(ctx context.Context, id, message string) error {
	if err := d.full(); err != nil {
		return err
	}
	return d.Containers.ReapContainer(ctx, id, message)
}

func (d filledDisk) RemoveSandbox(ctx context.Context, id string, ended func(context.Context) error) error {
	if err := d.full(); err != nil {
		return err
	}
	return d.Sandboxes.RemoveSandbox(ctx, id, ended)
}

func (d filledDisk) CreateSandbox(ctx context.Context, p *v1.Pod, attempt int) error {
	if err := d.full(); err != nil {
		return err
	}
	return d.Sandboxes.CreateSandbox(ctx, p, attempt)
}

func (d filledDisk) Evict(uid pod.UID, why string) error {
	if err := d.full(); err != nil {
		return err
	}
	return d.Data.Evict(uid, why)
}

func (d filledDisk) Interrupt(uid pod.UID) error {
	if err := d.full(); err != nil {
		return err
	}
	return d.Data.Interrupt(uid)
}

func (d filledDisk) SaveResult(uid pod.UID) (err error) {
	if err := d.full(); err != nil {
		return err
	}
	d.results++
	if d.interrupted, err = d.Interrupted(uid); err != nil {
		return err
	}
	return d.Data.SaveResult(uid)
}

// TestRemovedFromADiskThatItFills: a pod is removed although the disk, which it has filled itself, has no space to record
// anything. Before anything else podrun then records that the pod is not wanted, or stores its result, if it has one for
// good: that of one that is cut off is no success.
func TestRemovedFromADiskThatItFills(t *testing.T) {
	for name, c := range map[string]struct {
		script               fake.Script
		policy               v1.RestartPolicy
		results              int
		interrupted, removed bool // removed: its manifest is; else it is stopped
	}{
		"it runs":           {policy: v1.RestartPolicyOnFailure, removed: true},
		"it is cut off":     {policy: v1.RestartPolicyNever, results: 1, interrupted: true},
		"it is to run anew": {script: fake.Script{Run: time.Second, Exit: 1}, policy: v1.RestartPolicyAlways, removed: true},
		"it has completed":  {script: fake.Script{Run: time.Second}, policy: v1.RestartPolicyOnFailure, results: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := runtimeWith(map[string]fake.Script{"a:1": c.script})
				rt.ExitOnTerm("a", 0)
				p := newPod("fills", "u1", c.policy, "a")
				p.Annotations[plan.AnnotationRunPolicy] = plan.RunOnceEver
				disk := &fill{free: true}
				h := start(t, rt, func(o *reconcile.Options) {
					all := filledDisk{o.Data, o.Containers, o.Sandboxes, disk}
					o.Data, o.Containers, o.Sandboxes, o.Stops = all, all, all, !c.removed
				})
				defer h.stop()
				h.want(p)
				after(time.Minute)
				disk.free = false
				h.want()
				after(10 * time.Minute)
				if all, err := rt.List(t.Context()); err != nil || len(all) > 0 {
					t.Errorf("%v is left: %v", all, err)
				}
				if disk.marked != c.removed || disk.results != c.results || disk.interrupted != c.interrupted {
					t.Errorf("marked: %t; %d results were stored, interrupted: %t", disk.marked, disk.results, disk.interrupted)
				}
			})
		})
	}
}

// TestEvictedFromADiskThatItFills: a limit holds also when what exceeds it has left no space to record that.
func TestEvictedFromADiskThatItFills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"a:1": {}})
		rt.ExitOnTerm("a", 0)
		used, disk := &ledger{}, &fill{free: true}
		h := start(t, rt, func(o *reconcile.Options) {
			all := filledDisk{o.Data, o.Containers, o.Sandboxes, disk}
			o.Data, o.Containers, o.Sandboxes, o.Disk = all, all, all, used
		})
		defer h.stop()
		p := newPod("fills", "u1", v1.RestartPolicyAlways, "a")
		p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("10")}
		h.want(p)
		after(time.Minute)
		h.wantLiving("u1-a-0")
		disk.free = false
		used.set(11, nil)
		after(5 * time.Minute)
		h.wantLiving("")
		h.wantPhase("fills", v1.PodFailed)
		if s := h.board.get("fills").Status; s.Reason != "Evicted" || !disk.emptied {
			t.Errorf("%s: %s; its volumes are removed: %v", s.Reason, s.Message, disk.emptied)
		}
		if why, err := rt.Evicted("u1"); err != nil || why == "" {
			t.Errorf("it is not recorded: %q, %v", why, err)
		}
	})
}

// TestReplacedOnADiskThatItFills: an edit of a pod that has filled the disk gives its space back to the new revision.
func TestReplacedOnADiskThatItFills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"a:1": {}})
		rt.ExitOnTerm("a", 0)
		disk := &fill{free: true}
		h := start(t, rt, func(o *reconcile.Options) {
			all := filledDisk{o.Data, o.Containers, o.Sandboxes, disk}
			o.Data, o.Containers, o.Sandboxes = all, all, all
		})
		defer h.stop()
		h.want(newPod("fills", "u1", v1.RestartPolicyAlways, "a"))
		after(time.Minute)
		h.wantLiving("u1-a-0")
		disk.free = false
		edited := newPod("fills", "u2", v1.RestartPolicyAlways, "a")
		edited.Spec.Containers[0].Command = []string{"less"}
		h.want(edited)
		after(10 * time.Minute)
		h.wantLiving("u2-a-0")
	})
}
