package sys

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// inMountNamespace runs f where no mount of its own is seen by anybody else.
func inMountNamespace(t *testing.T, f func(dir string) error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting is root's")
	}
	dir := t.TempDir()
	err := OnOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
			return err
		}
		if err := SetPropagation("/", PrivateTree); err != nil {
			return err
		}
		return f(dir)
	})
	if err != nil {
		t.Error(err)
	}
}

// TestMountAllows: a mount permits only what Allow says.
func TestMountAllows(t *testing.T) {
	const all = unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC
	for allow, want := range map[Allow]int64{AllowNothing: all, AllowExec: all &^ unix.ST_NOEXEC} {
		inMountNamespace(t, func(dir string) error {
			if err := MountFS("tmpfs", "test", dir, "size=16k,mode=700", allow); err != nil {
				return err
			}
			check := func(more int64) error {
				var st unix.Statfs_t
				if err := unix.Statfs(dir, &st); err != nil {
					return err
				}
				if got := st.Flags & (all | unix.ST_RDONLY); got != want|more {
					t.Errorf("allowing %#x: flags %#x, want %#x", allow, got, want|more)
				}
				return nil
			}
			if err := check(0); err != nil {
				return err
			}
			if err := RemountReadOnly(dir, allow); err != nil {
				return err
			}
			return check(unix.ST_RDONLY)
		})
	}
}

func TestUnmount(t *testing.T) {
	inMountNamespace(t, func(dir string) error {
		link := filepath.Join(dir, "link")
		at := filepath.Join(dir, "at")
		if err := errors.Join(os.Mkdir(at, 0o700), os.Symlink("at", link), BindOne(at, at)); err != nil {
			return err
		}
		for _, not := range []string{dir, link, filepath.Join(dir, "none")} {
			for name, f := range map[string]func(string) error{"Unmount": Unmount, "Detach": Detach} {
				if err := f(not); !errors.Is(err, ErrNotMounted) {
					t.Errorf("%s of %s: %v", name, filepath.Base(not), err)
				}
			}
		}
		if err := SetPropagation(dir, Private); !errors.Is(err, ErrNotMounted) {
			t.Errorf("propagation of no mount: %v", err)
		}
		busy, err := os.Create(filepath.Join(at, "busy"))
		if err != nil {
			return err
		}
		defer busy.Close()
		if err := Unmount(at); !errors.Is(err, unix.EBUSY) {
			t.Errorf("in use: %v", err)
		}
		if err := Detach(at); err != nil {
			t.Errorf("in use: %v", err)
		}
		return nil
	})
}
