package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/containers"

	"podrun.io/podrun/internal/pod"
)

// cutOffTime is for how long containerd may go on with the start of a container after whoever asked for it
// was killed: it gives the start up, but a shim may come of it all the same.
const cutOffTime = 2 * time.Second

// endCutOff ends the shims that came of the cut-off starts before the one that has the record c. While the pod
// lives it may share one of them: then only such go as have no container, if none has just ended.
func (r *Runtime) endCutOff(ctx context.Context, c containers.Container, cutOff []string) error {
	found, err := r.containersOf(ctx, keyOf(c.Labels))
	if err != nil {
		return err
	}
	which := anyShim
	for _, other := range found {
		t, err := r.task(ctx, other.ID)
		switch {
		case err != nil:
			return err
		case t != nil && t.Status == task.Status_STOPPED:
			return nil
		case t != nil:
			which = hasNoChildren
		}
	}
	return r.endStrayShims(ctx, cutOff, c.CreatedAt.Add(cutOffTime), which)
}

func anyShim(int) bool { return true }

func hasNoChildren(pid int) bool { return children(pid) == 0 }

// endStrayShims ends those shims that were started for containers which never ran, until the given time has
// come. Such a shim serves nobody: the caller knows that nothing of the pod lives, or which serve nobody. containerd
// itself has forgotten it.
func (r *Runtime) endStrayShims(ctx context.Context, ids []string, until time.Time, which func(pid int) bool) error {
	for {
		for _, id := range ids {
			t, err := r.task(ctx, id)
			if err != nil {
				return err
			}
			if t == nil {
				if err := killShims(which, "-namespace", r.Namespace, "-id", id); err != nil {
					return fmt.Errorf("ending what a start of %s left: %w", id, err)
				}
			}
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

// endForgotten ends the containers that have a cgroup in a removed pod's, at path in the hierarchy at mount, and no
// task: containerd was asked for them by a podrun that was killed, and forgot them, or has lost its directory.
func (r *Runtime) endForgotten(ctx context.Context, mount, path string) error {
	entries, err := os.ReadDir(filepath.Join(mount, path))
	if err != nil {
		return err
	}
	for _, e := range entries {
		id := e.Name()
		if !e.IsDir() {
			continue
		}
		t, err := r.task(ctx, id)
		if err != nil {
			return err
		}
		if t != nil {
			continue
		}
		r.Log.Info("ending a container that containerd has forgotten", "container", id)
		if err := killShims(anyShim, "-namespace", r.Namespace, "-id", id, "-address", r.Address); err != nil {
			return fmt.Errorf("ending the shim of %s, which containerd has forgotten: %w", id, err)
		}
		r.layGhost(ctx, id)
		if _, err := r.endProcesses(ctx, id, filepath.Join(path, id)); err != nil {
			return err
		}
	}
	return nil
}

// sweepShims ends all shims of a namespace in which containerd has neither container nor task: they come of
// starts that were cut off, and serve nobody.
func (r *Runtime) sweepShims(ctx context.Context) error {
	ctx = r.context(ctx)
	running, err := r.client.TaskService().List(ctx, &tasks.ListTasksRequest{})
	if err != nil {
		return mapped("listing tasks", err)
	}
	known, err := r.client.ContainerService().List(ctx)
	if err != nil {
		return mapped("listing containers", err)
	}
	if len(running.Tasks)+len(known) > 0 {
		return nil
	}
	return killShims(anyShim, "-namespace", r.Namespace, "-address", r.Address)
}

// killShims kills those of the shims that were started with all of the given flags.
func killShims(which func(pid int) bool, flags ...string) error {
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	var failed []error
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil || !isShim(strings.Split(string(text), "\x00"), flags) {
			continue // gone meanwhile, or another program
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return err
		}
		if !which(pid) {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// remainsTime is how long what was killed is given to end.
const remainsTime = 10 * time.Second

// endRemains kills what runs of an instance of which containerd has no task, as when the directory with all of
// containerd's tasks was deleted: nobody would hear of its end, and a replacement would run beside it. It returns
// when nothing runs any more.
func (r *Runtime) endRemains(ctx context.Context, c containers.Container) error {
	shims, err := r.endProcesses(ctx, c.ID, cgroupOf(c))
	if err != nil {
		return err
	}
	return r.endIdleShims(ctx, keyOf(c.Labels), shims)
}

// isInside tells a process of a container from the runtime's that waits there to become it: its program is a file
// of the container's.
func isInside(pid int) bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	root, err := os.Stat(filepath.Join(dir, "root"))
	if err != nil {
		return false
	}
	if own, err := os.Stat("/"); err != nil || os.SameFile(root, own) {
		return false
	}
	path, err := os.Readlink(filepath.Join(dir, "exe"))
	if err != nil {
		return false
	}
	program, err := os.Stat(filepath.Join(dir, "exe"))
	if err != nil {
		return false
	}
	there, err := os.Stat(filepath.Join(dir, "root", path))
	return err == nil && os.SameFile(program, there)
}

// endProcesses kills the processes in a container's cgroup, and returns the shims that they had when they have
// ended. What another containerd's shim serves is left alone: that one has a container of the same name.
func (r *Runtime) endProcesses(ctx context.Context, id, cgroupPath string) (shims map[int]bool, err error) {
	shims = map[int]bool{}
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(remainsTime); ; {
		left := 0
		for _, pid := range processesIn(cgroupPath) {
			shim, mine := r.shimOf(pid)
			if shim != 0 && !mine {
				continue
			}
			if shim != 0 {
				shims[shim] = true
			}
			r.Log.Debug("ending what containerd has forgotten", "container", id, "pid", pid)
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return nil, fmt.Errorf("ending what is left of %s: %w", id, err)
			}
			left++
		}
		if left == 0 {
			return shims, nil
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
func (r *Runtime) endIdleShims(ctx context.Context, key pod.Key, shims map[int]bool) error {
	if len(shims) == 0 {
		return nil
	}
	if idle, err := r.idle(ctx, key, ""); err != nil || !idle {
		return err
	}
	for shim := range shims {
		for range 40 { // it hears of the end that was just made
			if children(shim) == 0 {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		if children(shim) > 0 {
			continue // the pod's next instance that is reaped sees to it
		}
		if err := syscall.Kill(shim, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("ending a shim that serves nobody: %w", err)
		}
	}
	return nil
}

// idle reports that containerd has no task of the pod, or of one of its sandboxes if that is given.
func (r *Runtime) idle(ctx context.Context, key pod.Key, sandboxID string) (bool, error) {
	found, err := r.containersOf(ctx, key)
	if err != nil {
		return false, err
	}
	for _, c := range found {
		if sandboxID != "" && c.Labels[labelSandbox] != sandboxID {
			continue
		}
		if t, err := r.task(ctx, c.ID); err != nil || t != nil {
			return false, err
		}
	}
	return true, nil
}

// shimOf is the shim that a process descends from, 0 if there is none, and whether it is this containerd's.
func (r *Runtime) shimOf(pid int) (shim int, mine bool) {
	for pid > 1 {
		parent, err := parentOf(pid)
		if err != nil {
			return 0, false
		}
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(parent), "cmdline"))
		if err != nil {
			return 0, false
		}
		if args := strings.Split(string(text), "\x00"); isShim(args, nil) {
			return parent, isShim(args, []string{"-namespace", r.Namespace, "-address", r.Address})
		}
		pid = parent
	}
	return 0, false
}

// children is how many children that have not ended a process has.
func children(pid int) (n int) {
	lists, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task/*/children"))
	if err != nil {
		return 0
	}
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, child := range strings.Fields(string(text)) {
			stat, err := os.ReadFile(filepath.Join("/proc", child, "stat"))
			if end := strings.LastIndexByte(string(stat), ')'); err == nil && end >= 0 && !strings.HasPrefix(string(stat[end:]), ") Z") {
				n++
			}
		}
	}
	return n
}

// isShim reports that a command line is of a shim with all of the given flags, each with its value.
func isShim(args, flags []string) bool {
	for pair := range slices.Chunk(flags, 2) {
		i := slices.Index(args, pair[0])
		if i < 0 || i+1 >= len(args) || args[i+1] != pair[1] {
			return false
		}
	}
	return strings.HasPrefix(filepath.Base(args[0]), "containerd-shim-")
}

// isBundleLeft reports that a start found the directory of an earlier one that was cut off, which
// containerd has forgotten.
func isBundleLeft(err error, id string) bool {
	return err != nil && strings.HasSuffix(err.Error(), id+": file exists")
}
