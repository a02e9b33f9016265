package containerd

import (
	"context"
	"time"

	"github.com/containerd/containerd/v2/core/sandbox"
	"github.com/containerd/errdefs"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
)

// containerd keeps records of sandboxes. To podrun they are mere marks with two effects: one under a
// sandbox's ID lets containers join its shim, and one under a container's ID makes a containerd that
// starts keep that container's shim although its process has ended. Without it the exit of a container
// that ends while containerd is down is lost.

// putRecord makes the record; one that is there is fine.
func (r *Runtime) putRecord(ctx context.Context, id string, labels map[string]string) error {
	now := time.Now()
	_, err := r.client.SandboxStore().Create(ctx, sandbox.Sandbox{
		ID: id, Sandboxer: "podrun", CreatedAt: now, UpdatedAt: now, Labels: labels,
		Runtime: sandbox.RuntimeOpts{Name: r.RuntimeName},
	})
	if errdefs.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// dropRecord removes the record, where containerd keeps any.
func (r *Runtime) dropRecord(ctx context.Context, id string) error {
	if !r.client.KeepsSandboxes {
		return nil
	}
	if err := r.client.SandboxStore().Delete(ctx, id); err != nil && !daemon.IsNotFound(err) {
		return daemon.Mapped("removing the sandbox record "+id, err)
	}
	return nil
}

// keepExit makes the instance's record while its task is being started, since nobody has to wait for it.
// Not earlier: a shim that has no task yet is to go when containerd dies. The returned function waits.
// Without the record only containerd's death can lose something.
func (r *Runtime) keepExit(ctx context.Context, id string, s runtime.Start) (wait func()) {
	if !r.client.KeepsSandboxes {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		labels := map[string]string{labelPodUID: string(s.Pod.UID), labelContainer: s.Container.Name}
		if err := r.putRecord(ctx, id, labels); err != nil && ctx.Err() == nil {
			r.Log.Debug("a container's exit would not survive containerd's", "container", id, "why", err)
		}
	}()
	return func() { <-done }
}

// dropRecords removes the records of a revision that are left: those of containers that somebody else
// removed, and of sandboxes that a reboot did.
func (r *Runtime) dropRecords(ctx context.Context, uid pod.UID) error {
	if !r.client.KeepsSandboxes {
		return nil
	}
	left, err := r.client.SandboxStore().List(ctx, uidFilter(uid))
	if err != nil {
		return daemon.Mapped("listing the records of revision "+string(uid), err)
	}
	for _, s := range left {
		if _, err := r.client.ContainerService().Get(ctx, s.ID); err == nil {
			continue // goes with its container
		}
		if err := r.dropRecord(ctx, s.ID); err != nil {
			return err
		}
	}
	return nil
}
