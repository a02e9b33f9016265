package containerd_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
)

// TestCutOffStart interrupts a start at various times. Removing the instance must leave nothing of
// it, and must not change anything else of the pod.
func TestCutOffStart(t *testing.T) {
	for name, start := range daemontest.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alone := newRig(t, start(t), "sleep 1000", withFiles)
			shared := rigOn(t, alone.daemon, alone.Runtime, "sleep 1000", withFiles, named("shared-node"))
			sibling := shared.run(t)
			for _, r := range []rig{alone, shared} {
				for _, after := range []time.Duration{-1, 0, 5 * time.Millisecond, 20 * time.Millisecond, time.Hour} {
					r.cut(t, after)
				}
			}
			if c := find(t, shared.Runtime, shared.key, "main", 0); c.State != pod.Running || c.PID != sibling.PID {
				t.Errorf("the sibling: %+v", c)
			}
			if c := alone.run(t); c.State != pod.Running {
				t.Errorf("the next start: %+v", c)
			}
		})
	}
}

func withFiles(p *v1.Pod) {
	c := &p.Spec.Containers[0]
	c.Stdin, c.StdinOnce, c.TerminationMessagePath = true, true, "/dev/termination-log"
}

// cut starts an instance with a podrun that is killed after a time, at the latest just before the
// process would run; if after is negative, before the call.
func (r *rig) cut(t *testing.T, after time.Duration) {
	t.Helper()
	first := dialOnly(t, r.daemon).Driver
	s, begun := r.start, time.Now()
	s.ID, s.Attempt = newID(), 99
	s.Started = func(string) error {
		if after == time.Hour {
			first.Close()
		}
		return errors.New("podrun is killed")
	}
	if after < 0 {
		first.Close()
	} else if after < time.Hour {
		time.AfterFunc(after, func() { first.Close() })
	}
	err := first.StartContainer(context.Background(), s)
	if err == nil {
		t.Fatalf("cut after %s: it was started", after)
	}
	c := pod.Container{ID: s.ID, Name: "main", UID: s.Pod.UID, Attempt: s.Attempt}
	if err := r.Driver.RemoveContainer(t.Context(), c, begun); err != nil {
		t.Fatalf("cut after %s, by %v: %v", after, err, err)
	}
	if err := r.Driver.RemoveContainer(t.Context(), c, begun); err != nil {
		t.Errorf("cut after %s, removed again: %v", after, err)
	}
	for _, left := range r.leftOf(t, c) {
		t.Errorf("cut after %s, by %v: left is %s", after, err, left)
	}
}

// TestShimDiesOverStart kills the shim after the program has begun to run and before the start is
// answered. The instance has run then: it must not count as one that never ran, which the same
// attempt would replace.
func TestShimDiesOverStart(t *testing.T) {
	for name, start := range daemontest.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared := t.TempDir()
			ran := filepath.Join(shared, "ran")
			// Its parent is the shim.
			line := "echo >> /shared/ran; kill -9 $PPID; sleep 1000"
			r := newRig(t, start(t), line, func(p *v1.Pod) { p.Spec.HostPID = true })
			r.start.Mounts = []pod.Mount{{HostPath: shared, ContainerPath: "/shared"}}
			unanswered := 0
			for attempt := range 10 {
				r.start.Attempt = attempt
				before, _ := os.ReadFile(ran)
				err := r.StartContainer(t.Context(), r.start)
				after, _ := os.ReadFile(ran)
				if started := (*runtime.StartError)(nil); errors.As(err, &started) && started.Unknown {
					unanswered++
					if c := find(t, r.Runtime, r.key, "main", attempt); c.State != pod.Exited || c.ExitCode != 255 || c.Reason != pod.ReasonLost {
						t.Errorf("after %v: %+v", err, c)
					}
					time.Sleep(50 * time.Millisecond)
					if later, _ := os.ReadFile(ran); len(later) > len(after) {
						t.Errorf("attempt %d ran after it was said to have ended", attempt)
					}
				} else if err != nil {
					if len(after) > len(before) {
						t.Errorf("attempt %d ran, and its start failed: %v", attempt, err)
					}
					continue
				}
				c := r.ended(t, attempt)
				if c.ExitCode == 0 {
					t.Errorf("%+v", c)
				}
				if err := r.ReapContainer(t.Context(), c.ID, ""); err != nil {
					t.Error(err)
				}
			}
			if unanswered == 0 {
				t.Error("all starts were answered, so that this shows nothing")
			}
			clear(t, r.Runtime)
		})
	}
}

// TestRecordRemovedDuringStart checks that a process does not stay whose record another program removed while the task
// was being created, before podrun removes it: it is killed when the next instance starts, and with its pod nothing of it
// is left.
func TestRecordRemovedDuringStart(t *testing.T) {
	for name, start := range daemontest.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, start(t), "sleep 1000")
			ctx, raw := r.daemon.Client(t)
			var ended []int
			var ids []string
			for range 2 {
				c := r.run(t)
				ids = append(ids, c.ID)
				for _, pid := range ended {
					// A zombie, which its shim has yet to reap, does not run.
					stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
					if err == nil && !strings.Contains(string(stat), ") Z ") {
						t.Errorf("process %d runs beside the next one: %s", pid, stat)
					}
				}
				if err := raw.ContainerService().Delete(ctx, c.ID); err != nil {
					t.Fatal(err)
				}
				ended = append(ended, c.PID)
			}
			clear(t, r.Runtime)
			daemontest.Eventually(t, "the last process ends", func() bool { return errors.Is(syscall.Kill(ended[1], 0), syscall.ESRCH) })
			r.noTask(t, ids...)
			for _, id := range ids { // containerd's garbage collection would
				if err := raw.SnapshotService("overlayfs").Remove(ctx, id); err != nil && !errdefs.IsNotFound(err) {
					t.Error(err)
				}
			}
			if name == "debian" {
				return // its containerd keeps no such records
			}
			if left, err := raw.SandboxStore().List(ctx); err != nil || len(left) > 0 {
				t.Errorf("sandbox records left: %+v, %v", left, err)
			}
		})
	}
}

// TestRecordRemovedBeforeTheStart checks that a task goes with the start that fails because another program removed its
// record between the task's creation and its start.
func TestRecordRemovedBeforeTheStart(t *testing.T) {
	for name, start := range daemontest.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, start(t), "sleep 1000")
			ctx, raw := r.daemon.Client(t)
			s := r.start
			s.ID = newID()
			s.Started = func(string) error { return raw.ContainerService().Delete(ctx, s.ID) }
			if err := r.Driver.StartContainer(t.Context(), s); err == nil {
				t.Fatal("it was started")
			}
			r.noTask(t, s.ID)
			clear(t, r.Runtime)
		})
	}
}

// noTask checks that containerd has no tasks and that no root filesystem of these instances is mounted.
func (r *rig) noTask(t *testing.T, ids ...string) {
	t.Helper()
	ctx, raw := r.daemon.Client(t)
	tasks, err := raw.TaskService().List(ctx, &tasks.ListTasksRequest{})
	if err != nil || len(tasks.Tasks) > 0 {
		t.Errorf("tasks left: %v, %v", tasks, err)
	}
	mounted, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if strings.Contains(string(mounted), id) {
			t.Errorf("the root filesystem of %s stays mounted", id)
		}
	}
}

// TestRecordsGoWithTheRevision checks that the records of a revision are removed even if the containers that they are for
// are removed only later, and not by podrun.
func TestRecordsGoWithTheRevision(t *testing.T) {
	r := newRig(t, daemontest.Embedded(t), "exit 0")
	c := r.run(t)
	r.ended(t, c.Attempt)
	if err := r.ReapContainer(t.Context(), c.ID, ""); err != nil {
		t.Fatal(err)
	}
	ctx, raw := r.daemon.Client(t)
	if kept, err := raw.SandboxStore().List(ctx); err != nil || len(kept) == 0 {
		t.Fatalf("there is no record, so that this shows nothing: %v", err)
	}
	if err := r.RemoveSandbox(t.Context(), r.start.Sandbox.ID, nil); err != nil {
		t.Fatal(err)
	}
	if err := r.RemoveData(t.Context(), r.key, r.start.Pod.UID); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(raw.ContainerService().Delete(ctx, c.ID), raw.SnapshotService("overlayfs").Remove(ctx, c.ID)); err != nil {
		t.Fatal(err)
	}
	if left, err := raw.SandboxStore().List(ctx); err != nil || len(left) > 0 {
		t.Errorf("left: %+v, %v", left, err)
	}
	clear(t, r.Runtime)
}

func newID() string {
	var bits [16]byte
	_, _ = rand.Read(bits[:])
	return hex.EncodeToString(bits[:])
}

// leftOf lists what is left of an instance.
func (r *rig) leftOf(t *testing.T, c pod.Container) (left []string) {
	t.Helper()
	ctx, raw := r.daemon.Client(t)
	if _, err := raw.ContainerService().Get(ctx, c.ID); err == nil {
		left = append(left, "the record")
	}
	if _, err := raw.SnapshotService("overlayfs").Stat(ctx, c.ID); err == nil {
		left = append(left, "the root filesystem")
	}
	found, err := r.Driver.InspectContainers(t.Context(), r.key, []string{c.ID})
	if err != nil {
		t.Error(err)
	}
	for _, i := range found {
		if i.ID == c.ID {
			left = append(left, fmt.Sprintf("%+v", i))
		}
	}
	for _, line := range daemontest.Shims(t, r.daemon.Address) {
		if strings.Contains(line, c.ID) {
			left = append(left, line)
		}
	}
	paths := []string{filepath.Join(r.Dirs.Runc(), containerd.DefaultNamespace, c.ID), layout.TerminationLog(r.Dirs.Revision(c.UID).RawLog(c.Name, c.ID))}
	stdin, _ := filepath.Glob(layout.Stdin(r.Dirs.Revision(c.UID).RawLog(c.Name, c.ID)) + "*")
	for _, path := range append(paths, stdin...) {
		if exists(path) {
			left = append(left, path)
		}
	}
	for _, dir := range oci.CgroupsOfInstance(string(c.UID), c.ID) {
		hierarchies := []string{"/sys/fs/cgroup"}
		if !cgroup.Unified() {
			hierarchies, _ = filepath.Glob("/sys/fs/cgroup/*")
		}
		for _, h := range hierarchies {
			if pids, err := os.ReadFile(filepath.Join(h, dir, "cgroup.procs")); err == nil && len(pids) > 0 {
				left = append(left, "processes "+string(pids))
			}
		}
	}
	return left
}

// TestStartThatIsRefused checks that the process does not run and nothing is left if the start
// cannot be recorded.
func TestStartThatIsRefused(t *testing.T) {
	r := newRig(t, daemontest.Embedded(t), "sleep 1000", withFiles)
	s, full := r.start, errors.New("the disk is full")
	s.ID, s.Attempt = newID(), 7
	s.Started = func(string) error { return full }
	err := r.Driver.StartContainer(t.Context(), s)
	if started := (*runtime.StartError)(nil); !errors.Is(err, full) || errors.Is(err, runtime.ErrCutOff) || errors.As(err, &started) {
		t.Errorf("error %v", err)
	}
	c := pod.Container{ID: s.ID, Name: "main", UID: s.Pod.UID, Attempt: s.Attempt}
	if err := r.Driver.RemoveContainer(t.Context(), c, time.Time{}); err != nil {
		t.Error(err)
	}
	if left := r.leftOf(t, c); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestEndedBeforeItRan checks that a process that exits after its preparation and before its
// program runs counts as never run, whatever its exit code.
func TestEndedBeforeItRan(t *testing.T) {
	for name, start := range daemontest.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, start(t), "sleep 1000", withFiles)
			ctx, raw := r.daemon.Client(t)
			first, begun := dialOnly(t, r.daemon).Driver, time.Now()
			s := r.start
			s.ID = newID()
			s.Started = func(string) error {
				created, err := raw.TaskService().Get(ctx, &tasks.GetRequest{ContainerID: s.ID})
				if err != nil {
					return err
				}
				if err := syscall.Kill(int(created.Process.Pid), syscall.SIGKILL); err != nil {
					return err
				}
				if _, err := raw.TaskService().Wait(ctx, &tasks.WaitRequest{ContainerID: s.ID}); err != nil {
					return err
				}
				first.Close()
				return nil
			}
			if err := first.StartContainer(t.Context(), s); err == nil {
				t.Fatal("it was started")
			}
			found, err := r.Driver.InspectContainers(t.Context(), r.key, []string{s.ID})
			if err != nil || len(found) != 1 || found[0].State != pod.Created || found[0].Reaped {
				t.Errorf("%+v, %v", found, err)
			}
			c := pod.Container{ID: s.ID, Name: "main", UID: s.Pod.UID}
			if err := r.Driver.RemoveContainer(t.Context(), c, begun); err != nil {
				t.Error(err)
			}
			if left := r.leftOf(t, c); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// TestStartKilledAfterItRan: if containerd dies during a start, `runc start` may be killed after it has let
// the program run and before it has removed the FIFO at which runc's init had waited. The program runs, and
// what it exits with is its result. It has removed its executable, by which a running program is known else.
func TestStartKilledAfterItRan(t *testing.T) {
	for name, start := range daemontest.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := "cp /bin/busybox /busybox && exec /busybox sh -c 'rm /busybox; sleep 1; exit 3'"
			r := newRig(t, start(t), program, withFiles)
			ctx, raw := r.daemon.Client(t)
			first := dialOnly(t, r.daemon).Driver
			s := r.start
			s.ID = newID()
			s.Started = func(string) error {
				// The times of files go by the kernel's ticks: as if a runc had to be started first.
				time.Sleep(50 * time.Millisecond)
				// This is what runc start does first.
				fifo, err := os.Open(filepath.Join(r.Dirs.Runc(), containerd.DefaultNamespace, s.ID, "exec.fifo"))
				if err != nil {
					return err
				}
				defer fifo.Close()
				if _, err := io.ReadAll(fifo); err != nil {
					return err
				}
				first.Close()
				return nil
			}
			if err := first.StartContainer(t.Context(), s); err == nil {
				t.Fatal("it was started")
			}
			inspect := func() pod.Container {
				found, err := r.Driver.InspectContainers(t.Context(), r.key, []string{s.ID})
				if err != nil || len(found) != 1 {
					t.Fatalf("%+v, %v", found, err)
				}
				return found[0]
			}
			for removed := false; !removed; time.Sleep(10 * time.Millisecond) {
				c := inspect()
				if c.State != pod.Running || c.PID == 0 {
					t.Fatalf("while it runs: %+v", c)
				}
				link, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", c.PID))
				removed = strings.HasSuffix(link, " (deleted)")
			}
			if err := r.Driver.ReapContainer(t.Context(), s.ID); err == nil {
				t.Error("it was reaped while it ran")
			}
			if _, err := raw.TaskService().Wait(ctx, &tasks.WaitRequest{ContainerID: s.ID}); err != nil {
				t.Fatal(err)
			}
			if c := inspect(); c.State != pod.Exited || c.ExitCode != 3 {
				t.Errorf("when it has ended: %+v", c)
			}
		})
	}
}
