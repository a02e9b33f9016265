package resources

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/instance"
)

// TestSliceIsStoppedAgain: a slice is stopped although its cgroup went before, while systemd did not answer. Without
// slices systemd is not needed.
func TestSliceIsStoppedAgain(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	mounts, err := instance.Hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	uid := pod.UID(strings.ToLower(rand.Text()))
	slice := "/podrun.slice/podrun-pod" + string(uid) + ".slice"
	var dirs []string
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
