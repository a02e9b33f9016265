package containerd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"
	signals "github.com/moby/sys/signal"

	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/instance"
)

const sigkill = uint32(syscall.SIGKILL)

// SignalContainer implements runtime.Driver.
func (r *Runtime) SignalContainer(ctx context.Context, id, signal string) error {
	ctx = r.client.Context(ctx)
	c, there, err := r.lookup.Record(ctx, id)
	if err != nil || !there {
		return err
	}
	number, err := signals.ParseSignal(signal)
	if err != nil {
		return fmt.Errorf("signalling %s: %w", id, err)
	}
	request := &tasks.KillRequest{ContainerID: id, Signal: uint32(number), All: number == syscall.SIGKILL}
	_, err = r.client.TaskService().Kill(ctx, request)
	if err == nil && request.All && oci.DriverOf(instance.CgroupsPathOf(c)) == oci.Systemd {
		// KILL for all processes reaches those in one of the container's cgroups. On cgroup v1
		// systemd may have moved them to another one: see
		// https://github.com/systemd/systemd/issues/37044.
		request.All = false
		_, err = r.client.TaskService().Kill(ctx, request)
		if daemon.IsGone(err) {
			return nil
		}
	}
	if daemon.IsGone(err) {
		return r.signalForgotten(ctx, c, number)
	}
	return daemon.Mapped("signalling "+id, err)
}

// signalForgotten signals a container of which the shim or the low-level runtime reports that it
// does not exist. As a rule that is true; but if the directory of the runtime's state was deleted,
// the process still runs.
func (r *Runtime) signalForgotten(ctx context.Context, c containers.Container, signal syscall.Signal) error {
	if signal == syscall.SIGKILL {
		return r.killForgotten(ctx, c.ID)
	}
	t, err := r.lookup.Task(ctx, c.ID)
	if err != nil || t == nil || t.Status != task.Status_RUNNING ||
		!slices.Contains(instance.Processes(instance.CgroupOf(c)), int(t.Pid)) {
		return err
	}
	if err := syscall.Kill(int(t.Pid), signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signalling %s: %w", c.ID, err)
	}
	return nil
}

// killForgotten is signalForgotten for SIGKILL. It also kills a process that was only prepared to
// start.
func (r *Runtime) killForgotten(ctx context.Context, id string) error {
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

// KillRemains implements runtime.Driver.
func (r *Runtime) KillRemains(ctx context.Context, id string) error {
	ctx = r.client.Context(ctx)
	c, there, err := r.lookup.Record(ctx, id)
	if err != nil || !there {
		return err
	}
	return r.orphans.KillRemains(ctx, c)
}

// ReapContainer implements runtime.Driver. A task whose process was only prepared to start belongs
// to a start that failed.
func (r *Runtime) ReapContainer(ctx context.Context, id string) error {
	ctx = r.client.Context(ctx)
	c, there, err := r.lookup.Record(ctx, id)
	if err != nil || !there {
		return err
	}
	t, err := r.lookup.Task(ctx, id)
	if err != nil {
		return err
	}
	prepared := t != nil && t.Status == task.Status_CREATED && !instance.IsInside(int(t.Pid))
	if t != nil && t.Status != task.Status_STOPPED && !prepared {
		return fmt.Errorf("container %s has not exited: it is %s", id, t.Status)
	}
	if err := r.dropFiles(ctx, instance.Identity(c), t); err != nil {
		return err
	}
	switch {
	case t == nil:
		return nil
	case prepared:
		return r.destroyTask(ctx, id)
	}
	if _, err := r.client.TaskService().Delete(
		ctx, &tasks.DeleteTaskRequest{ContainerID: id},
	); err != nil && !daemon.IsNotFound(err) {
		return daemon.Mapped("removing the task of "+id, err)
	}
	return nil
}

// dropFiles removes the files that were created for this instance alone, except its output.
func (r *Runtime) dropFiles(ctx context.Context, c pod.Container, t *task.Process) error {
	// The shim would otherwise keep its ends of a terminal's input until it exits, which is at the
	// end of the pod.
	if t != nil && t.Stdin != "" {
		if err := instance.CloseStdin(ctx, r.client, c.ID); err != nil {
			r.Log.Debug("standard input of an exited container cannot be closed", "container", c.ID, "err", err)
		}
	}
	if err := r.files.RemoveStdin(c); err != nil {
		return err
	}
	return r.files.RemoveTerminationLog(c)
}

// RemoveContainer implements runtime.Driver.
func (r *Runtime) RemoveContainer(ctx context.Context, c pod.Container, begun time.Time) error {
	ctx = r.client.Context(ctx)
	record, there, err := r.lookup.Record(ctx, c.ID)
	if err != nil {
		return err
	}
	if there {
		c = instance.Identity(record)
	}
	if !begun.IsZero() {
		if err := r.orphans.KillCutOff(ctx, c, begun); err != nil {
			return err
		}
		if err := r.dropFiles(ctx, c, nil); err != nil {
			return err
		}
	} else if !there {
		return r.files.RemoveOutput(c)
	}
	if err := r.removeInstance(ctx, c); err != nil {
		return err
	}
	return r.files.RemoveOutput(c)
}

// removeInstance removes the task, the root filesystem and the record of an instance that does not
// run.
func (r *Runtime) removeInstance(ctx context.Context, c pod.Container) error {
	id := c.ID
	t, err := r.lookup.Task(ctx, id)
	switch {
	case err != nil:
		return err
	case t == nil:
		r.orphans.RemoveDeadRecord(ctx, id) // its start may have been interrupted
	case t.Status != task.Status_STOPPED && t.Status != task.Status_CREATED:
		return fmt.Errorf("container %s is %s: not removed", id, t.Status)
	default:
		if err := r.destroyTask(ctx, id); err != nil {
			return err
		}
	}
	return r.removeRecord(ctx, c)
}

// removeRecord removes the root filesystem, the withheld values and the record. The record is
// removed last, so that an interrupted removal is found and repeated. For a moment after a task has
// been deleted, containerd refuses to remove them; removeRecord retries.
func (r *Runtime) removeRecord(ctx context.Context, c pod.Container) error {
	id := c.ID
	if err := r.files.RemoveWithheld(c.UID, id); err != nil {
		return err
	}
	err := r.retried(ctx, func() error { return r.client.Snapshots().Remove(ctx, id) })
	if err != nil {
		return daemon.Mapped("removing the root filesystem of "+id, err)
	}
	if err := r.records.Remove(ctx, id); err != nil {
		return err
	}
	err = r.retried(ctx, func() error { return r.client.ContainerService().Delete(ctx, id) })
	return daemon.Mapped("removing container "+id, err)
}

// retried repeats remove for half a second as long as containerd reports a failed precondition. A
// missing object counts as removed.
func (r *Runtime) retried(ctx context.Context, remove func() error) error {
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
