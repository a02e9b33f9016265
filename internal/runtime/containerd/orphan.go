package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/containers"

	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	shims "podrun.io/podrun/internal/shim"
)

// cutOffTime is for how long containerd may go on with the start of a container after whoever asked for it
// was killed: it gives the start up, but a shim may come of it all the same.
const cutOffTime = 2 * time.Second

// cutOffEnd is until when something may come of a start that was cut off. A clock that was set back does not put it off.
func cutOffEnd(begun, now time.Time) time.Time {
	return now.Add(min(cutOffTime, begun.Add(cutOffTime).Sub(now)))
}

// endCutOff ends what comes of a start that was cut off, until the given time has come or containerd has a task of
// it, which is as it should be.
func (r *Runtime) endCutOff(ctx context.Context, c pod.Container, until time.Time) error {
	for {
		t, err := r.task(ctx, c.ID)
		if err != nil || t != nil {
			return err
		}
		if err := r.endStray(ctx, c); err != nil {
			return err
		}
		if !time.Now().Before(until) {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// endStray ends the processes of an instance that containerd has no task of, and the shim that was started for it:
// containerd itself has forgotten them. Others of the pod may share that shim: while one of them lives it goes only if
// it serves nobody, and not while one has just ended, of which it tells.
func (r *Runtime) endStray(ctx context.Context, c pod.Container) error {
	for _, path := range oci.CgroupsOfInstance(string(c.UID), c.ID) {
		if _, err := r.endProcesses(ctx, c.ID, path); err != nil {
			return err
		}
	}
	r.layGhost(ctx, c.ID)
	found, err := r.client.ContainerService().List(ctx, uidFilter(c.UID))
	if err != nil {
		return daemon.Mapped("listing the containers of revision "+string(c.UID), err)
	}
	which := shims.Any
	for _, other := range found {
		t, err := r.task(ctx, other.ID)
		switch {
		case err != nil:
			return err
		case t != nil && t.Status == task.Status_STOPPED:
			return nil
		case t != nil:
			which = shims.Idle
		}
	}
	if err := shims.Kill(which, "-namespace", r.Namespace, "-id", c.ID); err != nil {
		return fmt.Errorf("ending what a start of %s left: %w", c.ID, err)
	}
	return nil
}

// endForgotten ends the containers that have a cgroup in a removed pod's, at path in the hierarchy at mount, and no
// task: containerd was asked for them by a podrun that was killed, and forgot them, or has lost its directory.
func (r *Runtime) endForgotten(ctx context.Context, mount, path string) error {
	entries, err := os.ReadDir(filepath.Join(mount, path))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		id := oci.InstanceOf(e.Name())
		t, err := r.task(ctx, id)
		if err != nil {
			return err
		}
		if t != nil {
			continue
		}
		r.Log.Info("ending a container that containerd has forgotten", "container", id)
		if err := shims.Kill(shims.Any, "-namespace", r.Namespace, "-id", id, "-address", r.Address); err != nil {
			return fmt.Errorf("ending the shim of %s, which containerd has forgotten: %w", id, err)
		}
		r.layGhost(ctx, id)
		if _, err := r.endProcesses(ctx, id, filepath.Join(path, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// sweepShims ends all shims of a namespace in which containerd has neither container nor task: they come of
// starts that were cut off, and serve nobody.
func (r *Runtime) sweepShims(ctx context.Context) error {
	ctx = r.client.Context(ctx)
	running, err := r.client.TaskService().List(ctx, &tasks.ListTasksRequest{})
	if err != nil {
		return daemon.Mapped("listing tasks", err)
	}
	known, err := r.client.ContainerService().List(ctx)
	if err != nil {
		return daemon.Mapped("listing containers", err)
	}
	if len(running.Tasks)+len(known) > 0 {
		return nil
	}
	return shims.Kill(shims.Any, "-namespace", r.Namespace, "-address", r.Address)
}

// remainsTime is how long what was killed is given to end.
const remainsTime = 10 * time.Second

// endRemains kills what runs of an instance of which containerd has no task, as when the directory with all of
// containerd's tasks was deleted: nobody would hear of its end, and a replacement would run beside it. It returns
// when nothing runs any more.
func (r *Runtime) endRemains(ctx context.Context, c containers.Container) error {
	served, err := r.endProcesses(ctx, c.ID, cgroupOf(c))
	if err != nil {
		return err
	}
	return r.endIdleShims(ctx, keyOf(c.Labels), served)
}

// isInside tells a process of a container from the runtime's that waits there to become it: its program is a file
// of the container's.
func isInside(pid int) bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	root, err := os.Stat(filepath.Join(dir, "root")) // trusted: it is only looked at
	if err != nil {
		return false
	}
	if own, err := os.Stat("/"); err != nil || os.SameFile(root, own) { // trusted: it is only looked at
		return false
	}
	path, err := os.Readlink(filepath.Join(dir, "exe"))
	if err != nil {
		return false
	}
	program, err := os.Stat(filepath.Join(dir, "exe")) // trusted: it is only looked at
	if err != nil {
		return false
	}
	there, err := os.Stat(filepath.Join(dir, "root", path)) // trusted: it is only looked at
	return err == nil && os.SameFile(program, there)
}

// endProcesses kills the processes in a container's cgroup, and returns the shims that they had when they have
// ended. What another containerd's shim serves is left alone: that one has a container of the same name.
func (r *Runtime) endProcesses(ctx context.Context, id, cgroupPath string) (served map[int]bool, err error) {
	served = map[int]bool{}
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(remainsTime); ; {
		left := 0
		for _, pid := range processesIn(cgroupPath) {
			shim, mine := shims.Of(pid, "-namespace", r.Namespace, "-address", r.Address)
			if shim != 0 && !mine {
				continue
			}
			if shim != 0 {
				served[shim] = true
			}
			r.Log.Debug("ending what containerd has forgotten", "container", id, "pid", pid)
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return nil, fmt.Errorf("ending what is left of %s: %w", id, err)
			}
			left++
		}
		if left == 0 {
			return served, nil
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("ending what is left of %s: %d processes do not end", id, left)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// endIdleShims ends those of a pod's shims that serve nobody any more: containerd, which has no task of the pod,
// does not know them.
func (r *Runtime) endIdleShims(ctx context.Context, key pod.Key, served map[int]bool) error {
	if len(served) == 0 {
		return nil
	}
	if idle, err := r.idle(ctx, key, ""); err != nil || !idle {
		return err
	}
	for shim := range served {
		for range 40 { // it hears of the end that was just made
			if shims.Idle(shim) {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		if !shims.Idle(shim) {
			continue // the pod's next instance that is reaped sees to it
		}
		if err := syscall.Kill(shim, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("ending a shim that serves nobody: %w", err)
		}
	}
	return nil
}

// idle reports that containerd has no task of the pod, or of one of its shims' groups if that is given.
func (r *Runtime) idle(ctx context.Context, key pod.Key, group string) (bool, error) {
	found, err := r.containersOf(ctx, key, nil)
	if err != nil {
		return false, err
	}
	for _, c := range found {
		if group != "" && specOf(c).Annotations[oci.AnnotationGroup] != group {
			continue
		}
		if t, err := r.task(ctx, c.ID); err != nil || t != nil {
			return false, err
		}
	}
	return true, nil
}
