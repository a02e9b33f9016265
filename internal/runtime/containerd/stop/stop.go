// Package stop ends instances: it signals their processes, frees what an exited instance has, and
// removes instances.
//
// It does not record exits: package checkpointed has done so before it reaps. Processes that
// containerd does not know are killed by package orphan. Sandboxes are removed by package start.
//
// Begin reading at Stopper and Remover.
package stop

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
	signals "github.com/moby/sys/signal"

	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/instance"
	"podrun.io/podrun/internal/runtime/containerd/orphan"
)

// Stopper signals and removes instances. Its methods may be called concurrently.
type Stopper struct {
	client  *daemon.Client
	lookup  *instance.Lookup
	orphans *orphan.Cleaner
	files   *instance.Files
	remover *Remover
}

// New returns a Stopper that removes with r.
func New(r *Remover) *Stopper { return &Stopper{r.client, r.lookup, r.orphans, r.files, r} }

// SignalContainer implements runtime.Driver.
func (s *Stopper) SignalContainer(ctx context.Context, id, signal string) error {
	ctx = s.client.Context(ctx)
	c, there, err := s.lookup.Record(ctx, id)
	if err != nil || !there {
		return err
	}
	number, err := signals.ParseSignal(signal)
	if err != nil {
		return fmt.Errorf("signalling %s: %w", id, err)
	}
	request := &tasks.KillRequest{ContainerID: id, Signal: uint32(number), All: number == syscall.SIGKILL}
	_, err = s.client.TaskService().Kill(ctx, request)
	if err == nil && request.All && oci.DriverOf(instance.CgroupsPathOf(c)) == oci.Systemd {
		// KILL for all processes reaches those in one of the container's cgroups. On cgroup v1
		// systemd may have moved them to another one: see
		// https://github.com/systemd/systemd/issues/37044.
		request.All = false
		_, err = s.client.TaskService().Kill(ctx, request)
		if daemon.IsGone(err) {
			return nil
		}
	}
	if daemon.IsGone(err) {
		return s.signalForgotten(ctx, c, number)
	}
	return daemon.Mapped("signalling "+id, err)
}

// signalForgotten signals a container of which the shim or the low-level runtime reports that it
// does not exist. As a rule that is true; but if the directory of the runtime's state was deleted,
// the process still runs.
func (s *Stopper) signalForgotten(ctx context.Context, c containers.Container, signal syscall.Signal) error {
	if signal == syscall.SIGKILL {
		return s.remover.killForgotten(ctx, c.ID)
	}
	t, err := s.lookup.Task(ctx, c.ID)
	if err != nil || t == nil || t.Status != task.Status_RUNNING ||
		!slices.Contains(instance.Processes(instance.CgroupOf(c)), int(t.Pid)) {
		return err
	}
	if err := syscall.Kill(int(t.Pid), signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signalling %s: %w", c.ID, err)
	}
	return nil
}

// KillRemains implements runtime.Driver.
func (s *Stopper) KillRemains(ctx context.Context, key pod.Key, c pod.Container) error {
	ctx = s.client.Context(ctx)
	record, there, err := s.lookup.Record(ctx, c.ID)
	if err != nil {
		return err
	}
	if !there {
		if err := s.remover.destroyUnreachable(ctx, key, c); err != nil {
			return err
		}
		return s.orphans.KillOrphan(ctx, c)
	}
	return s.orphans.KillRemains(ctx, record)
}

// ReapContainer implements runtime.Driver. It also reaps an instance whose process was prepared to
// start but never ran the container's program: its start has failed.
func (s *Stopper) ReapContainer(ctx context.Context, id string) error {
	ctx = s.client.Context(ctx)
	c, there, err := s.lookup.Record(ctx, id)
	if err != nil || !there {
		return err
	}
	t, err := s.lookup.Task(ctx, id)
	if err != nil {
		return err
	}
	prepared := t != nil && t.Status == task.Status_CREATED && !s.lookup.Runs(t)
	if t != nil && t.Status != task.Status_STOPPED && !prepared {
		return fmt.Errorf("container %s has not exited: it is %s", id, t.Status)
	}
	if err := s.remover.removeFiles(ctx, instance.Identity(c), t); err != nil {
		return err
	}
	switch {
	case t == nil:
		return nil
	case prepared:
		return s.remover.DestroyTask(ctx, instance.KeyOf(c.Labels), instance.Identity(c))
	}
	if _, err := s.client.TaskService().Delete(
		ctx, &tasks.DeleteTaskRequest{ContainerID: id},
	); err != nil && !daemon.IsNotFound(err) {
		return daemon.Mapped("removing the task of "+id, err)
	}
	return nil
}

// RemoveContainer implements runtime.Driver.
func (s *Stopper) RemoveContainer(ctx context.Context, c pod.Container, begun time.Time) error {
	ctx = s.client.Context(ctx)
	record, there, err := s.lookup.Record(ctx, c.ID)
	if err != nil {
		return err
	}
	if there {
		c = instance.Identity(record)
	}
	if !begun.IsZero() {
		if err := s.orphans.KillCutOff(ctx, c, begun); err != nil {
			return err
		}
		if err := s.remover.removeFiles(ctx, c, nil); err != nil {
			return err
		}
	} else if !there {
		return s.files.RemoveOutput(c)
	}
	if err := s.removeInstance(ctx, instance.KeyOf(record.Labels), c); err != nil {
		return err
	}
	return s.files.RemoveOutput(c)
}

// removeInstance removes the task, the root filesystem and the record of an instance that does not
// run.
func (s *Stopper) removeInstance(ctx context.Context, key pod.Key, c pod.Container) error {
	id := c.ID
	t, err := s.lookup.Task(ctx, id)
	switch {
	case err != nil:
		return err
	case t == nil:
		s.orphans.RemoveDeadRecord(ctx, id) // its start may have been interrupted
	case t.Status != task.Status_STOPPED && t.Status != task.Status_CREATED:
		return fmt.Errorf("container %s is %s: not removed", id, t.Status)
	default:
		if err := s.remover.DestroyTask(ctx, key, c); err != nil {
			return err
		}
	}
	return s.remover.removeRecord(ctx, c)
}
