package resources

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/instance"
)

// cgroupOf makes a slice of a pod in all hierarchies, and returns its directories.
func cgroupOf(t *testing.T, uid pod.UID) (slice string, dirs []string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	mounts, err := instance.Hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	slice = "/podrun.slice/podrun-pod" + string(uid) + ".slice"
	for _, m := range mounts {
		dir := filepath.Join(m.Mountpoint, slice)
		err := os.MkdirAll(dir, 0o755)
		if errors.Is(err, syscall.EROFS) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
		t.Cleanup(func() { _, _ = syscall.Rmdir(dir), syscall.Rmdir(path.Dir(dir)) })
	}
	if len(dirs) == 0 {
		t.Skip("cgroups are read-only here")
	}
	return slice, dirs
}

// TestRelease: what a pod without a sandbox has left running stays as it is, in its cgroup; an empty one goes.
func TestRelease(t *testing.T) {
	uid := pod.UID(strings.ToLower(rand.Text()))
	slice, dirs := cgroupOf(t, uid)
	var stopped []string
	g := &PodCgroups{driver: oci.Systemd, log: slog.New(slog.DiscardHandler)}
	g.stopSlice = func(_ context.Context, path string) error {
		stopped = append(stopped, path)
		return errors.New("systemd restarts") // which does not keep the pod from completing
	}
	left := exec.Command("sleep", "1000")
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	var ended error
	end := sync.OnceFunc(func() { ended = errors.Join(left.Process.Signal(syscall.SIGTERM), left.Wait()) })
	t.Cleanup(end)
	for _, dir := range dirs {
		// A new one for cpuset accepts none.
		_ = os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(left.Process.Pid)), 0)
	}
	there := func() (n int) {
		for _, dir := range dirs {
			if _, err := os.Stat(dir); err == nil {
				n++
			}
		}
		return n
	}
	g.Release(t.Context(), uid)
	if there() != len(dirs) || len(stopped) > 0 {
		t.Errorf("with a process in it: %d of %d left, stopped %q", there(), len(dirs), stopped)
	}
	// It lives until this test ends it: SIGKILL is what podrun would send.
	var by *exec.ExitError
	if end(); !errors.As(ended, &by) || by.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("the process has ended: %v", ended)
	}
	g.Release(t.Context(), uid)
	if there() > 0 || !slices.Equal(stopped, []string{slice}) {
		t.Errorf("empty: %d left, stopped %q", there(), stopped)
	}
	if g.Release(t.Context(), uid); len(stopped) > 1 { // there is no need to ask systemd
		t.Errorf("without a cgroup: stopped %q", stopped)
	}
}

// TestSliceIsStoppedAgain: a slice is stopped although its cgroup went before, while systemd did not answer. Without
// slices systemd is not needed.
func TestSliceIsStoppedAgain(t *testing.T) {
	uid := pod.UID(strings.ToLower(rand.Text()))
	slice, dirs := cgroupOf(t, uid)
	var stopped []string
	away := errors.New("systemd restarts")
	g := &PodCgroups{driver: oci.Systemd, log: slog.New(slog.DiscardHandler)}
	g.stopSlice = func(_ context.Context, path string) error {
		if path == slice {
			return away
		}
		return nil
	}
	if err := g.Remove(t.Context(), uid); !errors.Is(err, away) {
		t.Errorf("error %v", err)
	}
	for _, dir := range dirs {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	g.stopSlice = func(_ context.Context, path string) error {
		stopped = append(stopped, path)
		return nil
	}
	if err := g.Remove(t.Context(), uid); err != nil || !slices.Contains(stopped, slice) {
		t.Errorf("stopped %q, %v", stopped, err)
	}
	g.driver, stopped = oci.Cgroupfs, nil
	if err := g.Remove(t.Context(), uid); err != nil || len(stopped) > 0 {
		t.Errorf("without slices: stopped %q, %v", stopped, err)
	}
}
