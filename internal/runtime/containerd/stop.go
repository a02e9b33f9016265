package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
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
)

const sigkill = uint32(syscall.SIGKILL)

// ours returns the record of one of podrun's instances. A missing record is not an error; the
// record of a container that is not podrun's is one.
func (r *Runtime) ours(ctx context.Context, id string) (c containers.Container, there bool, err error) {
	c, err = r.client.ContainerService().Get(ctx, id)
	if daemon.IsNotFound(err) {
		return c, false, nil
	}
	if err != nil {
		return c, false, daemon.Mapped("looking for container "+id, err)
	}
	if !ours(c.Labels) {
		return c, false, fmt.Errorf("container %s is not podrun's", id)
	}
	return c, true, nil
}

// SignalContainer implements runtime.Driver.
func (r *Runtime) SignalContainer(ctx context.Context, id, signal string) error {
	ctx = r.client.Context(ctx)
	c, there, err := r.ours(ctx, id)
	if err != nil || !there {
		return err
	}
	number, err := signals.ParseSignal(signal)
	if err != nil {
		return fmt.Errorf("signalling %s: %w", id, err)
	}
	request := &tasks.KillRequest{ContainerID: id, Signal: uint32(number), All: number == syscall.SIGKILL}
	_, err = r.client.TaskService().Kill(ctx, request)
	if err == nil && request.All && oci.DriverOf(cgroupsPathOf(c)) == oci.Systemd {
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
	t, err := r.task(ctx, c.ID)
	if err != nil || t == nil || t.Status != task.Status_RUNNING ||
		!slices.Contains(processesIn(cgroupOf(c)), int(t.Pid)) {
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
	t, err := r.task(ctx, id)
	if err != nil || t == nil || t.Status != task.Status_RUNNING && t.Status != task.Status_CREATED {
		return err
	}
	c, there, err := r.ours(ctx, id)
	if err != nil || !there {
		return err
	}
	_, err = r.killProcesses(ctx, id, cgroupOf(c))
	return err
}

// KillRemains implements runtime.Driver.
func (r *Runtime) KillRemains(ctx context.Context, id string) error {
	ctx = r.client.Context(ctx)
	c, there, err := r.ours(ctx, id)
	if err != nil || !there {
		return err
	}
	return r.killRemains(ctx, c)
}

// ReapContainer implements runtime.Driver. A task whose process was only prepared to start belongs
// to a start that failed.
func (r *Runtime) ReapContainer(ctx context.Context, id string) error {
	ctx = r.client.Context(ctx)
	c, there, err := r.ours(ctx, id)
	if err != nil || !there {
		return err
	}
	t, err := r.task(ctx, id)
	if err != nil {
		return err
	}
	prepared := t != nil && t.Status == task.Status_CREATED && !isInside(int(t.Pid))
	if t != nil && t.Status != task.Status_STOPPED && !prepared {
		return fmt.Errorf("container %s has not exited: it is %s", id, t.Status)
	}
	if err := r.dropFiles(ctx, identity(c), t); err != nil {
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
	if err := r.dropStdin(ctx, c, t); err != nil {
		return err
	}
	return r.dropTerminationLog(c)
}

// RemoveContainer implements runtime.Driver.
func (r *Runtime) RemoveContainer(ctx context.Context, c pod.Container, begun time.Time) error {
	ctx = r.client.Context(ctx)
	record, there, err := r.ours(ctx, c.ID)
	if err != nil {
		return err
	}
	if there {
		c = identity(record)
	}
	if !begun.IsZero() {
		if err := r.killCutOff(ctx, c, cutOffEnd(begun, time.Now())); err != nil {
			return err
		}
		if err := r.dropFiles(ctx, c, nil); err != nil {
			return err
		}
	} else if !there {
		return r.dropRawLog(c)
	}
	if err := r.removeInstance(ctx, c); err != nil {
		return err
	}
	return r.dropRawLog(c)
}

// dropRawLog removes the raw output of the instance: it has been converted to its log, or is not
// needed any more.
func (r *Runtime) dropRawLog(c pod.Container) error {
	if c.UID == "" {
		return nil // nothing of the instance exists, and its pod is not known
	}
	if err := os.RemoveAll(r.Dirs.RawLog(c.UID, c.Name, c.ID)); err != nil { // trusted: files in it, which podrun made
		return fmt.Errorf("removing the output of %s: %w", c.ID, err)
	}
	return nil
}

// removeInstance removes the task, the root filesystem and the record of an instance that does not
// run.
func (r *Runtime) removeInstance(ctx context.Context, c pod.Container) error {
	id := c.ID
	t, err := r.task(ctx, id)
	switch {
	case err != nil:
		return err
	case t == nil:
		r.removeDeadRecord(ctx, id) // its start may have been interrupted
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
	if err := r.dropWithheld(c.UID, id); err != nil {
		return err
	}
	err := r.retried(ctx, func() error { return r.client.Snapshots().Remove(ctx, id) })
	if err != nil {
		return daemon.Mapped("removing the root filesystem of "+id, err)
	}
	if err := r.dropRecord(ctx, id); err != nil {
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
