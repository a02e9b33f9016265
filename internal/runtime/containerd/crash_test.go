package containerd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"

	"podrun.io/podrun/internal/embedded"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
)

// TestLostExit kills the shim, which alone knows the container's exit.
func TestLostExit(t *testing.T) {
	for name, start := range daemontest.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, start(t), "sleep 1000")
			c := r.run(t)
			if err := syscall.Kill(parent(t, c.PID), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			lost := r.ended(t, 0)
			if lost.ExitCode != 255 || lost.Reason != "ContainerStatusUnknown" || lost.Message == "" || lost.Reaped ||
				lost.FinishedAt.Before(lost.StartedAt) || !lost.StartedAt.Equal(c.StartedAt) {
				t.Errorf("%+v", lost)
			}
			if err := r.ReapContainer(t.Context(), c.ID, ""); err != nil {
				t.Fatal(err)
			}
			reaped := find(t, r.Runtime, r.key, "main", 0)
			if !reaped.Reaped || reaped.ExitCode != 255 || !reaped.FinishedAt.Equal(lost.FinishedAt) {
				t.Errorf("%+v", reaped)
			}
			// The pod's next container gets a shim of its own.
			if next := r.run(t); next.State != pod.Running {
				t.Errorf("%+v", next)
			}
		})
	}
}

// TestReboot checks what is reported of a container that ran when the machine was switched off.
func TestReboot(t *testing.T) {
	d := daemontest.Embedded(t)
	r := newRig(t, d, "sleep 1000")
	c := r.run(t)
	ctx, raw := d.Client(t)
	endTask(t, ctx, raw, c.ID)
	next, err := composeIn("another", options(t, d))
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	o, err := next.Inspect(t.Context(), r.key)
	if err != nil || len(o.Sandboxes) != 1 || o.Sandboxes[0].Ready || len(o.Containers) != 1 {
		t.Fatalf("%+v, %v", o, err)
	}
	if lost := o.Containers[0]; lost.State != pod.Exited || lost.ExitCode != 255 || lost.Boot != c.Boot {
		t.Errorf("%+v", lost)
	}
	if err := next.ReapContainer(t.Context(), c.ID, ""); err != nil {
		t.Fatal(err)
	}
	if reaped := find(t, r.Runtime, r.key, "main", 0); !reaped.Reaped || reaped.ExitCode != 255 {
		t.Errorf("%+v", reaped)
	}
}

// endTask kills and deletes the task, without podrun.
func endTask(t *testing.T, ctx context.Context, c *client.Client, id string) {
	t.Helper()
	loaded, err := c.LoadContainer(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	task, err := loaded.Task(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := task.Delete(ctx, client.WithProcessKill); err != nil {
		t.Fatal(err)
	}
}

// TestPodrunKilled breaks the connection at various times of a start; the next podrun starts the
// same instance again.
func TestPodrunKilled(t *testing.T) {
	d := daemontest.Embedded(t)
	r := newRig(t, d, "sleep 1000")
	for attempt := range 6 {
		r.start.Attempt = attempt
		first := dialOnly(t, d)
		done := make(chan error, 1)
		go func() { done <- first.StartContainer(context.Background(), r.start) }()
		time.Sleep(time.Duration(attempt*12) * time.Millisecond) // where to cut, not what to wait for
		first.Close()
		<-done
		if err := r.StartContainer(t.Context(), r.start); err != nil {
			t.Fatalf("cut after %d ms: %v", attempt*12, err)
		}
		if c := find(t, r.Runtime, r.key, "main", attempt); c.State != pod.Running {
			t.Errorf("cut after %d ms: %+v", attempt*12, c)
		}
	}
}

// dialOnly returns a Runtime without any clean-up after the test.
func dialOnly(t testing.TB, d daemontest.Daemon) *Runtime {
	t.Helper()
	r, err := compose(t, options(t, d))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestDaemonKilled checks that containers survive containerd's death and that the connection is
// re-established.
func TestDaemonKilled(t *testing.T) {
	d := daemontest.Embedded(t)
	r := newRig(t, d, "sleep 1000")
	c := r.run(t)
	rings, err := r.Wakeups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	killDaemon(t, d)
	for range rings { // until it is closed
	}
	if _, err := r.List(t.Context()); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("list: %v", err)
	}
	if _, err := r.Inspect(t.Context(), r.key); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("inspect: %v", err)
	}
	r.start.Attempt = 1
	err = r.StartContainer(t.Context(), r.start)
	if started := (*runtime.StartError)(nil); !errors.Is(err, runtime.ErrUnavailable) || errors.As(err, &started) {
		t.Errorf("start: %v", err)
	}
	revive(t, r)
	if now := find(t, r.Runtime, r.key, "main", 0); now != c {
		t.Errorf("%+v became %+v", c, now)
	}
	if c := r.run(t); c.State != pod.Running {
		t.Errorf("%+v", c)
	}
	clear(t, r.Runtime)
}

func TestNoDaemon(t *testing.T) {
	dirs := daemontest.Dirs(t)
	begin := time.Now()
	_, err := containerd.New(t.Context(), options(t, daemontest.Daemon{Dirs: dirs, Address: filepath.Join(dirs.Run, "none.sock")}))
	if !errors.Is(err, runtime.ErrUnavailable) || !strings.Contains(err.Error(), "none.sock") || time.Since(begin) > 5*time.Second {
		t.Errorf("after %s: %v", time.Since(begin), err)
	}
}

// TestListsAreTrue lists while instances are started and removed: no inspection may report an exit
// or a state that did not occur.
func TestListsAreTrue(t *testing.T) {
	r := newRig(t, daemontest.Embedded(t), "exit 3")
	ctx, cancel := context.WithCancel(t.Context())
	var looking sync.WaitGroup
	for _, look := range []func() (pod.Observed, error){
		func() (pod.Observed, error) { return r.Inspect(t.Context(), r.key) },
		func() (pod.Observed, error) {
			all, err := r.List(t.Context())
			if err != nil || len(all) != 1 {
				return pod.Observed{}, fmt.Errorf("%+v, %w", all, err)
			}
			return all[0], nil
		},
	} {
		looking.Go(func() {
			for ctx.Err() == nil {
				o, err := look()
				if err != nil {
					t.Error(err)
					return
				}
				for _, c := range o.Containers {
					if c.State == pod.Unknown || c.State == pod.Exited && (c.ExitCode != 3 || c.Reason != "Error") {
						t.Errorf("%+v", c)
					}
				}
			}
		})
	}
	for attempt := range 15 {
		c := r.run(t)
		r.ended(t, attempt)
		if err := r.ReapContainer(t.Context(), c.ID, ""); err != nil {
			t.Error(err)
		}
		if err := r.RemoveContainer(t.Context(), c.ID); err != nil {
			t.Error(err)
		}
	}
	cancel()
	looking.Wait()
}

// TestOneShim checks that all containers of a sandbox, including those that a later podrun starts,
// share one shim, which exits with the last of them.
func TestOneShim(t *testing.T) {
	for name, start := range daemontest.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, start(t), "sleep 1000")
			shim := parent(t, r.run(t).PID)
			for range 2 {
				if other := parent(t, r.run(t).PID); other != shim {
					t.Errorf("shims %d and %d", shim, other)
				}
			}
			later := rig{Runtime: dialOnly(t, r.daemon), daemon: r.daemon, key: r.key, start: r.start}
			defer later.Close()
			for range 2 {
				if other := parent(t, later.run(t).PID); other != shim {
					t.Errorf("shims %d and %d", shim, other)
				}
			}
			clear(t, r.Runtime)
			daemontest.Eventually(t, "the shim ends", func() bool { return syscall.Kill(shim, 0) != nil })
			// The address that is remembered leads nowhere now.
			again := rigOn(t, r.daemon, r.Runtime, "sleep 1000")
			if c := again.run(t); c.State != pod.Running {
				t.Errorf("%+v", c)
			}
		})
	}
}

// killDaemon kills the embedded containerd.
func killDaemon(t *testing.T, d daemontest.Daemon) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(d.Dirs.Embedded().State(), "daemon.lock"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, "the daemon is gone", func() bool { return !embedded.Running(d.Dirs) })
}

// revive starts the embedded containerd again; it runs until the test ends.
func revive(t *testing.T, r rig) {
	t.Helper()
	lease := daemontest.Ensure(t, r.daemon.Dirs)
	t.Cleanup(func() { lease.Close() })
	daemontest.Eventually(t, "the connection heals", func() bool {
		_, err := r.List(t.Context())
		return err == nil
	})
}

// TestExitsWhileTheDaemonIsDown checks that containers that exit while containerd is down keep
// their exit, with their own shim and with a shared one.
func TestExitsWhileTheDaemonIsDown(t *testing.T) {
	d := daemontest.Embedded(t)
	r := newRig(t, d, "until [ -e /end ]; do sleep 0.02; done; exit 5")
	var all []pod.Container
	for range 3 {
		all = append(all, r.run(t))
	}
	killDaemon(t, d)
	for _, c := range all {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/root/end", c.PID), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	daemontest.Eventually(t, "all ended", func() bool {
		for _, c := range all {
			if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.PID)); err == nil && !strings.Contains(string(stat), ") Z ") {
				return false
			}
		}
		return true
	})
	revive(t, r)
	for i := range all {
		c := r.ended(t, i)
		if c.ExitCode != 5 || c.Reason != "Error" || c.Reaped {
			t.Errorf("%+v", c)
		}
		if err := r.ReapContainer(t.Context(), c.ID, ""); err != nil {
			t.Error(err)
		}
	}
	ctx, raw := d.Client(t)
	records := func() int {
		t.Helper()
		found, err := raw.SandboxStore().List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	// One for each container and one for the shared shim.
	if n := records(); n != 4 {
		t.Errorf("%d records", n)
	}
	if err := r.RemoveContainer(t.Context(), all[0].ID); err != nil {
		t.Error(err)
	}
	// Behind podrun's back the record stays, until the pod goes.
	if theirs, err := raw.LoadContainer(ctx, all[1].ID); err != nil {
		t.Error(err)
	} else if err := theirs.Delete(ctx, client.WithSnapshotCleanup); err != nil {
		t.Error(err)
	}
	if n := records(); n != 3 {
		t.Errorf("%d records", n)
	}
	clear(t, r.Runtime)
	if n := records(); n != 0 {
		t.Errorf("%d records are left", n)
	}
}
