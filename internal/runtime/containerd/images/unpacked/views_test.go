package unpacked

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys"
)

// testViews returns Views whose directories are below a directory that other users
// can pass.
func testViews(t *testing.T) *Views {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	top, err := os.MkdirTemp("", "pv")
	if err == nil {
		err = os.Chmod(top, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left := mountsIn(t, top); len(left) > 0 {
			t.Errorf("left mounted: %v", left)
			return
		}
		if err := os.RemoveAll(top); err != nil {
			t.Error(err)
		}
	})
	return NewViews(layout.Dirs{Root: top + "/root", Run: top + "/run"}, slog.New(slog.DiscardHandler))
}

func mountsIn(t *testing.T, dir string) []string {
	t.Helper()
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range mounts {
		out = append(out, m.Mountpoint)
	}
	return out
}

// imageFiles returns a snapshot with files that must have no effect: a set-user-ID program and a
// device.
func imageFiles(t *testing.T) []mount.Mount {
	t.Helper()
	dir := t.TempDir()
	for at := dir; at != "/tmp" && at != "/"; at = filepath.Dir(at) {
		_ = os.Chmod(at, 0o755)
	}
	err := errors.Join(os.WriteFile(dir+"/program", []byte("#!/bin/sh\n"), 0o755), os.Chmod(dir+"/program", 0o755|os.ModeSetuid),
		unix.Mknod(dir+"/null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	if err != nil {
		t.Fatal(err)
	}
	return []mount.Mount{{Type: "bind", Source: dir, Options: []string{"rbind", "rw"}}}
}

func TestViewHasNoEffect(t *testing.T) {
	v := testViews(t)
	err := v.with(imageFiles(t), func(root string) error {
		var st unix.Statfs_t
		if err := unix.Statfs(root, &st); err != nil {
			return err
		}
		if want := int64(unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC); st.Flags&want != want {
			t.Errorf("mounted with %#x, want %#x", st.Flags, want)
		}
		if err := os.WriteFile(root+"/new", nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Errorf("writing: %v", err)
		}
		if err := exec.Command(root + "/program").Run(); !errors.Is(err, unix.EACCES) {
			t.Errorf("running: %v", err)
		}
		if _, err := os.Open(root + "/null"); !errors.Is(err, unix.EACCES) {
			t.Errorf("opening a device: %v", err)
		}
		other := exec.Command("stat", root+"/program")
		other.Dir, other.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if out, err := other.CombinedOutput(); err == nil || !strings.Contains(string(out), "Permission denied") {
			t.Errorf("another user: %s, %v", out, err)
		}
		return v.SweepViews() // it is in use
	})
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(v.dirs.ImageFiles().Views()); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	failed := errors.New("failed")
	if err := v.with(imageFiles(t), func(string) error { return failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
	if err := v.with([]mount.Mount{{Type: "no-such-type"}}, func(string) error { return nil }); err == nil {
		t.Error("nothing was mounted")
	}
}

// TestViewsOfTheKilled checks that the mounts of a killed podrun are removed, whenever it was
// killed, and those that another podrun uses are not.
func TestViewsOfTheKilled(t *testing.T) {
	v := testViews(t)
	for name, begun := range map[string]int{"locked": 0, "made": 1, "mounted": 2, "twice": 3} {
		root := filepath.Join(v.dirs.ImageFiles().Views(), name, viewName)
		if err := os.MkdirAll(filepath.Dir(root), 0o700); err != nil {
			t.Fatal(err)
		}
		if begun > 0 {
			if err := os.Mkdir(root, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		for range begun - 1 {
			if err := mount.All(imageFiles(t), root); err != nil {
				t.Fatal(err)
			}
		}
	}
	used := filepath.Join(v.dirs.ImageFiles().Views(), "used")
	lock, err := sys.TryLockDir(used, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(used+"/"+viewName, 0o700), mount.All(imageFiles(t), used+"/"+viewName)); err != nil {
		t.Fatal(err)
	}
	if err := v.SweepViews(); err != nil {
		t.Error(err)
	}
	if left := mountsIn(t, v.dirs.Run); len(left) != 1 || filepath.Dir(left[0]) != used {
		t.Errorf("mounted: %v", left)
	}
	lock.Unlock()
	if err := v.with(imageFiles(t), func(string) error { return nil }); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(v.dirs.ImageFiles().Views()); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
