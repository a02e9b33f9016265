package containerd_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/moby/sys/mountinfo"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
)

// TestForgotten: a container that containerd has forgotten, and runs, ends before another is started in its place,
// or with its pod.
func TestForgotten(t *testing.T) {
	for name, start := range map[string]func(testing.TB) daemontest.Daemon{"stock": daemontest.Stock, "debian": daemontest.Debian} {
		t.Run(name, func(t *testing.T) {
			d := start(t)
			r := newRig(t, d, "sleep 1000")
			c := r.runForgotten(t)
			shim := parent(t, c.PID)
			if err := r.ReapContainer(t.Context(), c.ID, ""); err != nil {
				t.Fatal(err)
			}
			if ended := find(t, r.Runtime, r.key, "main", 0); ended.ExitCode != 255 || !ended.Reaped {
				t.Errorf("%+v", ended)
			}
			daemontest.Eventually(t, "it and its shim have ended", func() bool {
				return errors.Is(syscall.Kill(c.PID, 0), syscall.ESRCH) && errors.Is(syscall.Kill(shim, 0), syscall.ESRCH)
			})
			c = r.runForgotten(t)
			// Nor has it a record, as one has not that came to run when its pod was on its way out.
			ctx, raw := d.Client(t)
			if err := errors.Join(raw.ContainerService().Delete(ctx, c.ID), raw.SnapshotService("overlayfs").Remove(ctx, c.ID)); err != nil {
				t.Fatal(err)
			}
			clear(t, r.Runtime)
			daemontest.Eventually(t, "its process has ended", func() bool { return errors.Is(syscall.Kill(c.PID, 0), syscall.ESRCH) })
		})
	}
}

// runForgotten starts a container, which runs on when containerd has forgotten it.
func (r *rig) runForgotten(t *testing.T) pod.Container {
	t.Helper()
	c, d := r.run(t), r.daemon.Server
	if err := errors.Join(d.Kill(), forget(filepath.Dir(d.Address), c.ID), d.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	if lost := find(t, r.Runtime, r.key, "main", c.Attempt); lost.State != pod.Exited {
		t.Fatalf("not forgotten: %+v", lost)
	}
	if err := syscall.Kill(c.PID, 0); err != nil {
		t.Fatalf("it does not run: %v", err)
	}
	return c
}

// forget removes what a containerd, which does not run, knows of the tasks of a container.
func forget(dir, id string) error {
	bundles, err := filepath.Glob(filepath.Join(dir, "*", "io.containerd.runtime.v2.task", "*", id))
	if err != nil || len(bundles) == 0 {
		return fmt.Errorf("no task of %s: %w", id, err)
	}
	var all []error
	for _, b := range bundles {
		err := syscall.Unmount(filepath.Join(b, "rootfs"), 0)
		if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOENT) { // the directory that containerd keeps is another
			err = nil
		}
		all = append(all, err, os.RemoveAll(b))
	}
	return errors.Join(all...)
}

// TestRunDirectoryRemoved: with the run directory, containerd's and runc's, goes all that tells of what runs, but not
// that it was started.
func TestRunDirectoryRemoved(t *testing.T) {
	d := daemontest.Stock(t)
	r := newRig(t, d, "sleep 1000")
	c := r.runForgotten(t)
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(r.Dirs.Run))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range slices.Backward(mounts) {
		if err := syscall.Unmount(m.Mountpoint, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}
	if err := os.RemoveAll(r.Dirs.Run); err != nil {
		t.Fatal(err)
	}
	next := dialOnly(t, d)
	defer next.Close()
	key := r.key
	for _, r := range []*Runtime{r.Runtime, next} {
		if lost := find(t, r, key, "main", c.Attempt); lost.State != pod.Exited || lost.ExitCode != 255 {
			t.Errorf("%+v", lost)
		}
	}
	if err := next.ReapContainer(t.Context(), c.ID, ""); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, "it has ended", func() bool { return errors.Is(syscall.Kill(c.PID, 0), syscall.ESRCH) })
}

// TestForgottenByRunc: a process that was only prepared, and that runc has forgotten and cannot end, gives way to
// another start, and ends with its container.
func TestForgottenByRunc(t *testing.T) {
	for name, start := range daemontest.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := start(t)
			r := newRig(t, d, "sleep 1000")
			c := r.run(t)
			pid := r.prepared(t, c)
			later := r.later(t)
			later.start.Attempt = c.Attempt
			next := later.run(t)
			if next.ID == c.ID || next.State != pod.Running {
				t.Errorf("in place of what never ran: %+v", next)
			}
			pids := []int{pid, r.prepared(t, next)}
			if err := r.RemoveContainer(t.Context(), next.ID); err != nil {
				t.Error(err)
			}
			for _, pid := range pids {
				daemontest.Eventually(t, "what was prepared has ended", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
			}
		})
	}
}

// later is a podrun that has not seen yet how containerd starts shims: the next one, too, is containerd's.
func (r *rig) later(t *testing.T) rig {
	t.Helper()
	later := rig{Runtime: dialOnly(t, r.daemon), daemon: r.daemon, key: r.key, start: r.start}
	t.Cleanup(func() { later.Close() })
	return later
}

// prepared leaves of an instance that runs what a start leaves that was cut off, in a run directory that was removed
// then: a process that waits to become it, and nothing that runc knows. It returns the process.
func (r *rig) prepared(t *testing.T, c pod.Container) int {
	t.Helper()
	ctx, raw := r.daemon.Client(t)
	endTask(t, ctx, raw, c.ID)
	found, err := raw.LoadContainer(ctx, c.ID)
	if err != nil {
		t.Fatal(err)
	}
	task, err := found.NewTask(ctx, cio.NullIO)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(r.Dirs.Runc(), containerd.DefaultNamespace, c.ID)); err != nil {
		t.Fatal(err)
	}
	neverRan(t, r.Runtime, c)
	if c := find(t, r.Runtime, r.key, "main", c.Attempt); c.State != pod.Created {
		t.Fatalf("%+v", c)
	}
	return int(task.Pid())
}
