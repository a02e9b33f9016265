package containerd_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"
	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
	"podrun.io/podrun/internal/runtime/containerd/instance"
)

// TestForgotten checks that a running container that containerd does not know any more is killed
// before another one is started in its place, or with its pod.
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
			r.loseRecord(t, c)
			clear(t, r.Runtime)
			daemontest.Eventually(t, "its process has ended", func() bool { return errors.Is(syscall.Kill(c.PID, 0), syscall.ESRCH) })
		})
	}
}

// loseRecord removes containerd's record of a container.
func (r *rig) loseRecord(t *testing.T, c pod.Container) {
	t.Helper()
	ctx, raw := r.daemon.Client(t)
	deleted := raw.ContainerService().Delete(ctx, c.ID)
	err := raw.SnapshotService("overlayfs").Remove(ctx, c.ID)
	if errdefs.IsNotFound(err) { // containerd collects it, now that its container is gone
		err = nil
	}
	if err := errors.Join(deleted, err); err != nil {
		t.Fatal(err)
	}
}

// TestForgottenBelow checks that a container that containerd does not know any more is killed although all its processes
// are in cgroups that it has made in its own, and although one of them is a containerd's shim.
func TestForgottenBelow(t *testing.T) {
	r := newRig(t, daemontest.Stock(t), "sleep 1000")
	c := r.runForgotten(t)
	ended := r.moveBelow(t, c)
	if err := r.ReapContainer(t.Context(), c.ID, ""); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, "its processes have ended", ended)
	c = r.runForgotten(t)
	ended = r.moveBelow(t, c)
	r.loseRecord(t, c)
	if err := r.Driver.RemovePod(t.Context(), r.key, c.UID); err != nil { // its checkpoint is lost too
		t.Error(err)
	}
	daemontest.Eventually(t, "its processes have ended with the pod", ended)
	for _, dir := range r.cgroups(t, c) {
		t.Errorf("left: %s", dir)
	}
}

// cgroups returns the directories of a container's cgroup, in all hierarchies.
func (r *rig) cgroups(t *testing.T, c pod.Container) (dirs []string) {
	t.Helper()
	mounts, err := instance.Hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		for _, path := range oci.CgroupsOfInstance(string(c.UID), c.ID) {
			if _, err := os.Stat(filepath.Join(m.Mountpoint, path)); err == nil {
				dirs = append(dirs, filepath.Join(m.Mountpoint, path))
			}
		}
	}
	return dirs
}

// moveBelow moves a container's process into a cgroup in its own, and starts a containerd's shim with a child beside it.
// It returns whether all these have ended.
func (r *rig) moveBelow(t *testing.T, c pod.Container) (ended func() bool) {
	t.Helper()
	nested := exec.Command("/bin/sh", "-c", "sleep 1000 & echo $!; wait")
	nested.Args[0] = "containerd-shim-runc-v2"
	out, err := nested.StdoutPipe()
	if err == nil {
		err = nested.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = nested.Wait() }()
	pids := []int{c.PID, nested.Process.Pid, child}
	ended = func() bool {
		return !slices.ContainsFunc(pids, func(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
	}
	t.Cleanup(func() {
		if !ended() {
			syscall.Kill(child, syscall.SIGKILL)
			syscall.Kill(nested.Process.Pid, syscall.SIGKILL)
		}
	})
	dirs := r.cgroups(t, c)
	if len(dirs) == 0 {
		t.Fatal("it has no cgroup")
	}
	for _, dir := range dirs {
		below := filepath.Join(dir, "system.slice", "docker.service")
		if err := os.MkdirAll(below, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"system.slice", "system.slice/docker.service"} {
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // of version 1, without which it accepts no process
				text, err := os.ReadFile(filepath.Join(dir, file))
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, name, file), text, 0)
				}
				if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
					t.Fatal(err)
				}
			}
		}
		for _, pid := range pids {
			if err := os.WriteFile(filepath.Join(below, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
				t.Fatal(err)
			}
		}
		if own, err := os.ReadFile(filepath.Join(dir, "cgroup.procs")); err != nil || len(own) > 0 {
			t.Fatalf("left in its own cgroup: %q, %v", own, err)
		}
	}
	return ended
}

// TestForgottenShimIsBusy checks that the shim of a container that containerd does not know any more is
// killed although it has another process for a while, such as the low-level runtime on a busy machine.
func TestForgottenShimIsBusy(t *testing.T) {
	shared := t.TempDir()
	// With the host's process IDs, what a program leaves behind becomes a child of the shim.
	line := "(setsid sleep 1001 & echo $! > /shared/pid); sleep 1000"
	r := newRig(t, daemontest.Stock(t), line, func(p *v1.Pod) { p.Spec.HostPID = true })
	r.start.Mounts = []pod.Mount{{HostPath: shared, ContainerPath: "/shared"}}
	c := r.runForgotten(t)
	shim := parent(t, c.PID)
	var busy int
	daemontest.Eventually(t, "the shim has another child", func() bool {
		text, _ := os.ReadFile(filepath.Join(shared, "pid"))
		busy, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return busy != 0 && parent(t, busy) == shim
	})
	t.Cleanup(func() { syscall.Kill(busy, syscall.SIGKILL) })
	groups, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range append(groups, "/sys/fs/cgroup/cgroup.procs") {
		if err := os.WriteFile(g, []byte(strconv.Itoa(busy)), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	time.AfterFunc(time.Second, func() { syscall.Kill(busy, syscall.SIGKILL) })
	if err := r.ReapContainer(t.Context(), c.ID, ""); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, "the shim has ended", func() bool { return errors.Is(syscall.Kill(shim, 0), syscall.ESRCH) })
	clear(t, r.Runtime)
}

// runForgotten starts a container that still runs after containerd has lost its task.
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

// forget removes what a containerd that is not running has stored about the tasks of a container.
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

// TestRunDirectoryRemoved removes the run directory, containerd's and runc's: nothing records any
// more what runs, but the checkpoint still records that it was started.
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

// TestForgottenByRunc checks that a process that was only prepared, and that runc does not know and
// cannot kill any more, is replaced by another start and is killed with its container.
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

// later returns a podrun that has not yet read how containerd starts shims, so containerd starts
// the next shim too.
func (r *rig) later(t *testing.T) rig {
	t.Helper()
	later := rig{Runtime: dialOnly(t, r.daemon), daemon: r.daemon, key: r.key, start: r.start}
	t.Cleanup(func() { later.Close() })
	return later
}

// prepared turns a running instance into what an interrupted start leaves if the run directory is
// then removed: a process that waits to become the container's, which runc does not know. It
// returns the process ID.
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
