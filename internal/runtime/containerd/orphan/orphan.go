// Package orphan kills the processes and shims that run without containerd's knowledge. Each case
// has a method of Cleaner:
//
//   - KillCutOff: a start was interrupted; containerd may still be creating something.
//   - KillOrphan: containerd has no task of an instance, and may have no record.
//   - KillRemains: containerd has the record of an instance, but has lost its task.
//   - KillUnknown: a removed pod still has a cgroup with containers.
//   - SweepShims: the containerd namespace has neither containers nor tasks.
//
// It kills nothing that another containerd serves. The shim of a sandbox that is removed in the
// ordinary way is killed by package shimpool.
//
// Begin reading at Cleaner and KillCutOff.
package orphan

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/containers"

	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/instance"
	shims "podrun.io/podrun/internal/shim"
	"podrun.io/podrun/internal/sys"
)

// Options configure a Cleaner. All are required.
type Options struct {
	Client *daemon.Client
	Lookup *instance.Lookup
	// Address and Namespace are containerd's socket and the containerd namespace.
	Address, Namespace string
	// RuncState is the directory of runc's state in that namespace.
	RuncState string
	Log       *slog.Logger
}

// Cleaner kills and removes what containerd does not know any more. Its methods may be called
// concurrently.
type Cleaner struct {
	client             *daemon.Client
	lookup             *instance.Lookup
	address, namespace string
	runcState          string
	log                *slog.Logger
}

// New returns a Cleaner.
func New(o Options) *Cleaner {
	return &Cleaner{o.Client, o.Lookup, o.Address, o.Namespace, o.RuncState, o.Log}
}

// cutOffTime is how long containerd may continue to start a container after the client that
// requested the start was killed. containerd cancels the start, but a shim may be started all the
// same.
const cutOffTime = 2 * time.Second

// cutOffEnd returns the time until which an interrupted start may still create something. A clock
// that was set back does not delay it.
func cutOffEnd(begun, now time.Time) time.Time {
	return now.Add(min(cutOffTime, begun.Add(cutOffTime).Sub(now)))
}

// KillCutOff kills what a start creates that began at the given time and was interrupted. It
// returns when such a start creates nothing any more, or as soon as containerd has a task of the
// instance, which is then removed as any other.
func (o *Cleaner) KillCutOff(ctx context.Context, c pod.Container, begun time.Time) error {
	until := cutOffEnd(begun, time.Now())
	for {
		t, err := o.lookup.Task(ctx, c.ID)
		if err != nil || t != nil {
			return err
		}
		if err := o.KillOrphan(ctx, c); err != nil {
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

// KillOrphan is for an instance of which containerd has no task, and possibly no record, as after
// an interrupted start. It kills the processes of the instance and the shim that was started for
// it. Other containers of the pod may share that shim. While one of them runs, the shim is killed
// only if it serves no container; while one has exited and is not reaped, the shim is not killed,
// because it holds that exit.
func (o *Cleaner) KillOrphan(ctx context.Context, c pod.Container) error {
	for _, path := range oci.CgroupsOfInstance(string(c.UID), c.ID) {
		if _, err := o.KillProcesses(ctx, c.ID, path); err != nil {
			return err
		}
	}
	o.RemoveDeadRecord(ctx, c.ID)
	found, err := o.client.ContainerService().List(ctx, instance.UIDFilter(c.UID))
	if err != nil {
		return daemon.Mapped("listing the containers of revision "+string(c.UID), err)
	}
	which := shims.Any
	for _, other := range found {
		t, err := o.lookup.Task(ctx, other.ID)
		switch {
		case err != nil:
			return err
		case t != nil && t.Status == task.Status_STOPPED:
			return nil
		case t != nil:
			which = shims.Idle
		}
	}
	if err := shims.Kill(which, "-namespace", o.namespace, "-id", c.ID); err != nil {
		return fmt.Errorf("killing the shim of an interrupted start of %s: %w", c.ID, err)
	}
	return nil
}

// KillUnknown is for a removed pod that still has a cgroup, at path in the hierarchy that is
// mounted at mount. It kills the containers that have a cgroup in it but no task: a podrun that was
// killed requested them and containerd has no record of them, or containerd has lost its directory. others is true if
// there are containers of another podrun, which has the same pod.
func (o *Cleaner) KillUnknown(ctx context.Context, mount, path string) (others bool, err error) {
	entries, err := os.ReadDir(filepath.Join(mount, path))
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		id := oci.InstanceOf(e.Name())
		t, err := o.lookup.Task(ctx, id)
		if err != nil {
			return others, err
		}
		if t != nil {
			c, err := o.client.ContainerService().Get(ctx, id)
			others = others || err == nil && instance.Ours(c) && !o.lookup.Ours(c)
			continue
		}
		cgroupPath := filepath.Join(path, e.Name())
		if o.ofOthers(cgroupPath) {
			others = true
			continue
		}
		o.log.Info("killing a container that containerd does not know any more", "container", id)
		if err := shims.Kill(shims.Any, "-namespace", o.namespace, "-id", id, "-address", o.address); err != nil {
			return others, fmt.Errorf("killing the shim of %s, which containerd does not know any more: %w", id, err)
		}
		o.RemoveDeadRecord(ctx, id)
		if _, err := o.KillProcesses(ctx, id, cgroupPath); err != nil {
			return others, err
		}
	}
	return others, nil
}

// ofOthers reports whether a cgroup has a process that the shim of another containerd serves.
func (o *Cleaner) ofOthers(cgroupPath string) bool {
	all := instance.Processes(cgroupPath)
	return slices.ContainsFunc(all, func(pid int) bool {
		shim, mine := o.shimOf(pid, all)
		return shim != 0 && !mine
	})
}

// shimOf returns the shim that serves a process of a container, 0 if there is none, and whether that shim is of this
// containerd. A shim among all the processes of the container does not count: it is a containerd's that runs in the
// container.
func (o *Cleaner) shimOf(pid int, all []int) (shim int, mine bool) {
	shim, mine = shims.Of(pid, "-namespace", o.namespace, "-address", o.address)
	for slices.Contains(all, shim) {
		shim, mine = shims.Of(shim, "-namespace", o.namespace, "-address", o.address)
	}
	return shim, mine
}

// SweepShims kills all shims of a containerd namespace that has neither containers nor tasks:
// interrupted starts left them, and they serve no container.
func (o *Cleaner) SweepShims(ctx context.Context) error {
	ctx = o.client.Context(ctx)
	running, err := o.client.TaskService().List(ctx, &tasks.ListTasksRequest{})
	if err != nil {
		return daemon.Mapped("listing tasks", err)
	}
	known, err := o.client.ContainerService().List(ctx)
	if err != nil {
		return daemon.Mapped("listing containers", err)
	}
	if len(running.Tasks)+len(known) > 0 {
		return nil
	}
	return shims.Kill(shims.Any, "-namespace", o.namespace, "-address", o.address)
}

// remainsTime is how long KillProcesses waits for killed processes to exit.
const remainsTime = 10 * time.Second

// KillRemains is for an instance of which containerd has the record but no task, for example
// because the directory with containerd's tasks was deleted. It kills the processes that still run:
// their exit would not be observed, and a replacement would run beside them. It returns when no
// process runs any more, and also kills the shims that served them if these serve nothing else.
func (o *Cleaner) KillRemains(ctx context.Context, c containers.Container) error {
	served, err := o.KillProcesses(ctx, c.ID, instance.CgroupOf(c))
	if err != nil {
		return err
	}
	return o.killIdleShims(ctx, instance.KeyOf(c.Labels), served)
}

// KillProcesses kills the processes in a container's cgroup and below it. When they have exited it returns the
// shims that served them. It leaves alone processes that the shim of another containerd serves:
// that containerd has a container of the same ID.
func (o *Cleaner) KillProcesses(ctx context.Context, id, cgroupPath string) (served map[int]bool, err error) {
	served = map[int]bool{}
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(remainsTime); ; {
		left := 0
		all := instance.Processes(cgroupPath)
		for _, pid := range all {
			shim, mine := o.shimOf(pid, all)
			if shim != 0 && !mine {
				continue
			}
			if shim != 0 {
				served[shim] = true
			}
			o.log.Debug("killing a leftover process of a container", "container", id, "pid", pid)
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return nil, fmt.Errorf("killing the leftover processes of %s: %w", id, err)
			}
			left++
		}
		if left == 0 {
			return served, nil
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("killing the leftover processes of %s: %d processes do not exit", id, left)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// killIdleShims kills those of the given shims of a pod that serve no container any more. containerd
// has no task of the pod and therefore does not know them.
func (o *Cleaner) killIdleShims(ctx context.Context, key pod.Key, served map[int]bool) error {
	if len(served) == 0 {
		return nil
	}
	if idle, err := o.Idle(ctx, key, ""); err != nil || !idle {
		return err
	}
	found, err := o.lookup.OfPod(ctx, key, nil)
	runs := func(c containers.Container) bool { return len(instance.Processes(instance.CgroupOf(c))) > 0 }
	if err != nil || slices.ContainsFunc(found, runs) {
		return err // they are killed with the last of the pod's containers
	}
	for shim := range served {
		// A shim whose container has ended may still run programs, such as the low-level runtime, which
		// take their time on a busy machine, and begin another one right after that.
		idle := shims.Idle(shim)
		for end := time.Now().Add(remainsTime); !idle && time.Now().Before(end); idle = shims.Idle(shim) {
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if !idle {
			o.log.Warn("a shim serves no container, but has processes that do not exit: it is left", "shim", shim)
			continue
		}
		if err := syscall.Kill(shim, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("killing a shim that serves no container: %w", err)
		}
	}
	return nil
}

// Idle reports whether containerd has no task of the pod or, if group is not empty, of that shim
// group of the pod.
func (o *Cleaner) Idle(ctx context.Context, key pod.Key, group string) (bool, error) {
	found, err := o.lookup.OfPod(ctx, key, nil)
	if err != nil {
		return false, err
	}
	for _, c := range found {
		if group != "" && instance.SpecOf(c).Annotations[oci.AnnotationGroup] != group {
			continue
		}
		if t, err := o.lookup.Task(ctx, c.ID); err != nil || t != nil {
			return false, err
		}
	}
	return true, nil
}

// RemoveDeadRecord removes a container that runc has although containerd has none: containerd or a
// shim was killed while it created it. Its process was never started.
func (o *Cleaner) RemoveDeadRecord(ctx context.Context, id string) {
	if _, err := os.Lstat(filepath.Join(o.runcState, id)); err != nil {
		return
	}
	container, err := sys.WordOperand(id)
	if err != nil {
		return
	}
	runc := sys.Program{
		Name: "runc", Options: []string{"--root", o.runcState, "delete", "--force"}, Operands: []sys.Operand{container},
	}
	if out, err := runc.Run(ctx, runtime.Timeout); err != nil {
		o.log.Debug("container of an interrupted start cannot be removed from runc",
			"container", id, "err", err, "output", out.Text())
	}
}
