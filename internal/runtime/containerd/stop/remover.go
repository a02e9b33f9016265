package stop

import (
	"context"
	"log/slog"
	"slices"
	"syscall"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"

	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/instance"
	"podrun.io/podrun/internal/runtime/containerd/orphan"
)

const sigkill = uint32(syscall.SIGKILL)

// Options configure a Remover. All are required.
type Options struct {
	Client  *daemon.Client
	Lookup  *instance.Lookup
	Orphans *orphan.Cleaner
	Files   *instance.Files
	Records *instance.SandboxRecords
	Log     *slog.Logger
}

// Remover removes what a start creates: the task, the root filesystem, the files and the record of
// an instance. Its methods may be called concurrently.
type Remover struct {
	client  *daemon.Client
	lookup  *instance.Lookup
	orphans *orphan.Cleaner
	files   *instance.Files
	records *instance.SandboxRecords
	log     *slog.Logger
}

// NewRemover returns a Remover.
func NewRemover(o Options) *Remover {
	return &Remover{o.Client, o.Lookup, o.Orphans, o.Files, o.Records, o.Log}
}

// Undo removes everything that a failed start of the instance has created.
func (r *Remover) Undo(ctx context.Context, key pod.Key, c pod.Container) error {
	if err := r.DestroyTask(ctx, key, c); err != nil {
		return err
	}
	r.orphans.RemoveDeadRecord(ctx, c.ID)
	if err := r.removeFiles(ctx, c, nil); err != nil {
		return err
	}
	return r.removeRecord(ctx, c)
}

// DestroyTask kills the instance's task, if it has one, and deletes it. It kills also a task that
// was only created: a shim would need 10 s to delete such a task otherwise.
func (r *Remover) DestroyTask(ctx context.Context, key pod.Key, c pod.Container) error {
	id, service := c.ID, r.client.TaskService()
	_, err := service.Kill(ctx, &tasks.KillRequest{ContainerID: id, Signal: sigkill, All: true})
	if daemon.IsGone(err) {
		if err := r.killForgotten(ctx, id); err != nil {
			return err
		}
	} else if err != nil {
		return daemon.Mapped("killing "+id, err)
	}
	if _, err := service.Wait(ctx, &tasks.WaitRequest{ContainerID: id}); err != nil && !daemon.IsGone(err) {
		return daemon.Mapped("waiting for the end of "+id, err)
	}
	_, err = service.Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: id})
	if !daemon.IsGone(err) {
		return daemon.Mapped("removing the task of "+id, err)
	}
	if _, there, err := r.lookup.Record(ctx, id); err != nil || there {
		return err
	}
	return r.destroyUnreachable(ctx, key, c)
}

// destroyUnreachable destroys the task, if there is one, of an instance whose record another program has
// removed. containerd lists such a task, but every other call needs the record: without it the task's
// directory would stay, with the root filesystem mounted in it. So the record is there again for as long
// as that takes. If podrun is killed meanwhile, the checkpoint has the ID, and the record is removed with
// the instance.
func (r *Remover) destroyUnreachable(ctx context.Context, key pod.Key, c pod.Container) error {
	listed, err := r.client.TaskService().List(ctx, &tasks.ListTasksRequest{})
	if err != nil {
		return daemon.Mapped("listing tasks", err)
	}
	if !slices.ContainsFunc(listed.Tasks, func(t *task.Process) bool { return t.ID == c.ID }) {
		return nil
	}
	for _, path := range oci.CgroupsOfInstance(string(c.UID), c.ID) {
		if _, err := r.orphans.KillProcesses(ctx, c.ID, path); err != nil {
			return err
		}
	}
	record := containers.Container{
		ID: c.ID, Labels: instance.LabelsOf(key, c),
		Runtime: containers.RuntimeInfo{Name: r.client.Runtime()},
		Spec:    instance.Encoded{URL: instance.SpecType, Value: []byte("{}")},
	}
	_, err = r.client.ContainerService().Create(ctx, record)
	if err != nil && !errdefs.IsAlreadyExists(daemon.Native(err)) {
		return daemon.Mapped("reaching the task of "+c.ID, err)
	}
	if err := r.DestroyTask(ctx, key, c); err != nil {
		return err
	}
	return r.removeRecord(ctx, c)
}

// killForgotten is signalForgotten for SIGKILL. It also kills a process that was only prepared to
// start.
func (r *Remover) killForgotten(ctx context.Context, id string) error {
	t, err := r.lookup.Task(ctx, id)
	if err != nil || t == nil || t.Status != task.Status_RUNNING && t.Status != task.Status_CREATED {
		return err
	}
	c, there, err := r.lookup.Record(ctx, id)
	if err != nil || !there {
		return err
	}
	_, err = r.orphans.KillProcesses(ctx, id, instance.CgroupOf(c))
	return err
}

// removeFiles removes the files that were created for this instance alone, except its output.
func (r *Remover) removeFiles(ctx context.Context, c pod.Container, t *task.Process) error {
	// The shim would otherwise keep its ends of a terminal's input until it exits, which is at the
	// end of the pod.
	if t != nil && instance.HasStdin(t.Stdin) {
		if err := instance.CloseStdin(ctx, r.client, c.ID); err != nil {
			r.log.Debug("standard input of an exited container cannot be closed", "container", c.ID, "err", err)
		}
	}
	if err := r.files.RemoveStdin(c); err != nil {
		return err
	}
	return r.files.RemoveTerminationLog(c)
}

// removeRecord removes the root filesystem, the withheld values and the record. The record is
// removed last, so that an interrupted removal is found and repeated. For a moment after a task has
// been deleted, containerd refuses to remove them; removeRecord retries.
func (r *Remover) removeRecord(ctx context.Context, c pod.Container) error {
	id := c.ID
	if err := r.files.RemoveWithheld(c.UID, id); err != nil {
		return err
	}
	err := retried(ctx, func() error { return r.client.Snapshots().Remove(ctx, id) })
	if err != nil {
		return daemon.Mapped("removing the root filesystem of "+id, err)
	}
	if err := r.records.Remove(ctx, id); err != nil {
		return err
	}
	err = retried(ctx, func() error { return r.client.ContainerService().Delete(ctx, id) })
	return daemon.Mapped("removing container "+id, err)
}

// retried repeats remove for half a second as long as containerd reports a failed precondition. A
// missing object counts as removed.
func retried(ctx context.Context, remove func() error) error {
	again := time.NewTicker(25 * time.Millisecond)
	defer again.Stop()
	for range 20 {
		err := daemon.Native(remove())
		if errdefs.IsNotFound(err) {
			return nil
		}
		if !errdefs.IsFailedPrecondition(err) {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return err
		}
	}
	return daemon.Native(remove())
}
