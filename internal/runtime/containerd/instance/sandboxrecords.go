package instance

import (
	"context"
	"log/slog"
	"maps"
	"time"

	sandboxstore "github.com/containerd/containerd/v2/core/sandbox"
	"github.com/containerd/errdefs"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
)

// SandboxRecords are containerd's sandbox records. podrun uses them only as markers with two
// effects. A record under the ID of a sandbox lets containers join the shim of that sandbox. A
// record under the ID of a container makes containerd, when it starts, keep the container's shim
// although its process has exited; without it, the exit of a container that exits while containerd
// is down is lost.
type SandboxRecords struct {
	client      *daemon.Client
	runtimeName string
	// root is podrun's root directory.
	root string
	log  *slog.Logger
}

// NewSandboxRecords returns the SandboxRecords of the client's containerd, which name the runtime and podrun's root
// directory.
func NewSandboxRecords(client *daemon.Client, runtimeName, root string, log *slog.Logger) *SandboxRecords {
	return &SandboxRecords{client, runtimeName, root, log}
}

// Create creates a sandbox record in containerd. It succeeds if the record already exists.
func (r *SandboxRecords) Create(ctx context.Context, id string, labels map[string]string) error {
	labels = maps.Clone(labels)
	labels[LabelRoot] = r.root
	now := time.Now()
	_, err := r.client.SandboxStore().Create(ctx, sandboxstore.Sandbox{
		ID: id, Sandboxer: "podrun", CreatedAt: now, UpdatedAt: now, Labels: labels,
		Runtime: sandboxstore.RuntimeOpts{Name: r.runtimeName},
	})
	if errdefs.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// Remove removes the record, if containerd keeps sandbox records.
func (r *SandboxRecords) Remove(ctx context.Context, id string) error {
	if !r.client.KeepsSandboxes {
		return nil
	}
	err := r.client.SandboxStore().Delete(ctx, id)
	if err == nil || daemon.IsNotFound(err) {
		return nil
	}
	// containerd 1.7 has no kind for the error that there is no such record.
	if _, left := r.client.SandboxStore().Get(ctx, id); daemon.IsNotFound(left) {
		return nil
	}
	return daemon.Mapped("removing the sandbox record "+id, err)
}

// CreateForExit creates the record of the instance concurrently with the start of its task, because
// nothing has to wait for it. It must not be created earlier: a shim that has no task yet has to
// end when containerd dies. The returned function waits for the creation. Without the record an
// exit is lost only if containerd dies.
func (r *SandboxRecords) CreateForExit(ctx context.Context, id string, s runtime.Start) (wait func()) {
	if !r.client.KeepsSandboxes {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		labels := map[string]string{LabelPodUID: string(s.Pod.UID), LabelContainer: s.Container.Name}
		if err := r.Create(ctx, id, labels); err != nil && ctx.Err() == nil {
			r.log.Debug("sandbox record of the container not created; its exit is lost if containerd stops",
				"container", id, "err", err)
		}
	}()
	return func() { <-done }
}

// RemoveAll removes all records of a revision: those of its containers, which another program may
// remove before podrun does, and those of sandboxes that ended with a reboot.
func (r *SandboxRecords) RemoveAll(ctx context.Context, uid pod.UID) error {
	if !r.client.KeepsSandboxes {
		return nil
	}
	left, err := r.client.SandboxStore().List(ctx, UIDFilter(uid))
	if err != nil {
		return daemon.Mapped("listing the records of revision "+string(uid), err)
	}
	for _, s := range left {
		if OfAnother(s.Labels, r.root) {
			continue
		}
		if err := r.Remove(ctx, s.ID); err != nil {
			return err
		}
	}
	return nil
}
