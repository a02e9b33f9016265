package containerd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"
	signals "github.com/moby/sys/signal"

	"podrun.io/podrun/internal/ocispec"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	shims "podrun.io/podrun/internal/shim"
)

const sigkill = uint32(syscall.SIGKILL)

// ours returns the record of one of podrun's instances; not there is no error.
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

// SignalContainer implements runtime.Containers. An empty signal is the one that the image asks for,
// TERM if it asks for none.
func (r *Runtime) SignalContainer(ctx context.Context, id string, signal string) error {
	ctx = r.client.Context(ctx)
	c, there, err := r.ours(ctx, id)
	if err != nil || !there {
		return err
	}
	if signal == "" {
		signal = c.Labels[labelStopSignal]
	}
	if signal == "" {
		signal = "TERM"
	}
	number, err := signals.ParseSignal(signal)
	if err != nil {
		return fmt.Errorf("signalling %s: %w", id, err)
	}
	request := &tasks.KillRequest{ContainerID: id, Signal: uint32(number), All: number == syscall.SIGKILL}
	_, err = r.client.TaskService().Kill(ctx, request)
	if err == nil && request.All && ocispec.DriverOf(cgroupsPathOf(c)) == ocispec.Systemd {
		// All are those in one of its cgroups, and on version 1 systemd may have moved them to another: see
		// https://github.com/systemd/systemd/issues/37044.
		request.All = false
		_, err = r.client.TaskService().Kill(ctx, request)
		if isGone(err) {
			return nil
		}
	}
	if isGone(err) {
		return r.signalForgotten(ctx, c, number)
	}
	return daemon.Mapped("signalling "+id, err)
}

// signalForgotten signals a container of which containerd's shim, or what it runs containers by, says that there is
// none. That is so as a rule; but when the directory of what runs was deleted, its process runs on.
func (r *Runtime) signalForgotten(ctx context.Context, c containers.Container, signal syscall.Signal) error {
	if signal == syscall.SIGKILL {
		return r.killForgotten(ctx, c.ID)
	}
	t, err := r.task(ctx, c.ID)
	if err != nil || t == nil || t.Status != task.Status_RUNNING || !slices.Contains(processesIn(cgroupOf(c)), int(t.Pid)) {
		return err
	}
	if err := syscall.Kill(int(t.Pid), signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signalling %s: %w", c.ID, err)
	}
	return nil
}

// killForgotten is signalForgotten for SIGKILL, and for a process that was only prepared too.
func (r *Runtime) killForgotten(ctx context.Context, id string) error {
	t, err := r.task(ctx, id)
	if err != nil || t == nil || t.Status != task.Status_RUNNING && t.Status != task.Status_CREATED {
		return err
	}
	c, there, err := r.ours(ctx, id)
	if err != nil || !there {
		return err
	}
	_, err = r.endProcesses(ctx, id, cgroupOf(c))
	return err
}

// ReapContainer implements runtime.Containers. The exit is written before the task is deleted: cut in
// between, it is merely done again.
func (r *Runtime) ReapContainer(ctx context.Context, id, message string) error {
	ctx = r.client.Context(ctx)
	c, there, err := r.ours(ctx, id)
	if err != nil || !there {
		return err
	}
	t, err := r.task(ctx, id)
	if err != nil {
		return err
	}
	if t != nil && t.Status != task.Status_STOPPED {
		return fmt.Errorf("container %s has not exited: it is %s", id, t.Status)
	}
	if _, recorded := exitOf(c.Labels); !recorded {
		var e exit
		switch {
		case t != nil:
			e = r.taskExit(c, t)
		case r.ran(c):
			if err := r.endRemains(ctx, c); err != nil {
				return err
			}
			e = r.lostExit(c)
		default:
			return fmt.Errorf("container %s never ran", id)
		}
		if e.message == "" {
			e.message = message
		}
		if err := r.writeExit(ctx, id, e); err != nil {
			return err
		}
	}
	if err := r.dropStdin(ctx, c); err != nil {
		return err
	}
	if err := r.dropTerminationLog(c); err != nil {
		return err
	}
	if t == nil {
		return nil
	}
	if _, err := r.client.TaskService().Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: id}); err != nil && !daemon.IsNotFound(err) {
		return daemon.Mapped("removing the task of "+id, err)
	}
	return nil
}

// writeExit records how the instance ended.
func (r *Runtime) writeExit(ctx context.Context, id string, e exit) error {
	c := containers.Container{ID: id, Labels: e.labels()}
	var fields []string
	for label := range c.Labels {
		fields = append(fields, "labels."+label)
	}
	if _, err := r.client.ContainerService().Update(ctx, c, fields...); err != nil && !daemon.IsNotFound(err) {
		return daemon.Mapped("recording the exit of "+id, err)
	}
	return nil
}

// RemoveContainer implements runtime.Containers. Earlier generations go after the one that hides them.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	ctx = r.client.Context(ctx)
	c, there, err := r.ours(ctx, id)
	if err != nil {
		return err
	}
	if !there {
		return nil // the mark of one that somebody else removed goes with its revision
	}
	cutOff := earlier(c.Labels)
	if len(cutOff) > 0 {
		if err := r.endCutOff(ctx, c, cutOff); err != nil {
			return err
		}
	}
	ids := append([]string{id}, cutOff...)
	if _, ended := exitOf(c.Labels); !ended && !r.ran(c) {
		if err := r.endStrayShims(ctx, ids, cutOffEnd(c.CreatedAt, time.Now()), shims.Any); err != nil {
			return err
		}
		for _, id := range ids {
			if _, err := r.endProcesses(ctx, id, ocispec.Sibling(cgroupsPathOf(c), id)); err != nil {
				return err
			}
		}
	}
	for _, id := range ids {
		if err := r.removeInstance(ctx, pod.UID(c.Labels[labelPodUID]), id); err != nil {
			return err
		}
	}
	return nil
}

// removeInstance removes task, root filesystem and record of an instance that does not run.
func (r *Runtime) removeInstance(ctx context.Context, uid pod.UID, id string) error {
	t, err := r.task(ctx, id)
	if err != nil {
		return err
	}
	if t != nil && t.Status != task.Status_STOPPED && t.Status != task.Status_CREATED {
		return fmt.Errorf("container %s is %s: not removed", id, t.Status)
	}
	if t != nil {
		if err := r.destroyTask(ctx, id); err != nil {
			return err
		}
	} else {
		r.layGhost(ctx, id) // its start may have been cut off
	}
	if err := r.removeRecord(ctx, id); err != nil {
		return err
	}
	return r.Unmark(uid, id)
}

// removeRecord removes root filesystem and record. The record goes last, so that what is cut off is
// found again. Containerd refuses for a moment after a task has gone.
func (r *Runtime) removeRecord(ctx context.Context, id string) error {
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

// retried tries again as long as containerd says that it is too early, for half a second. What is
// missing is removed.
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

// isGone reports that a task cannot be reached because it, or the shim that held it, is gone.
func isGone(err error) bool {
	return daemon.IsNotFound(err) || err != nil && strings.Contains(err.Error(), "ttrpc: closed")
}
