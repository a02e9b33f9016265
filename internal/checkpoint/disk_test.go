package checkpoint

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys/treetest"
	"podrun.io/podrun/internal/test"
)

// onOS returns a Store on the file system.
func onOS(t *testing.T) (*Store, osDisk) {
	d := osDisk{layout.Dirs{Root: t.TempDir()}}
	return NewStoreOn(d, slog.New(slog.NewTextHandler(t.Output(), nil))), d
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(path[:strings.LastIndexByte(path, '/')], 0o755), os.WriteFile(path, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestLeftovers: the remains of an interrupted creation or removal obstruct nothing.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	s, d := onOS(t)
	write(t, d.beside(coming, "u1")+"/checkpoint.json")
	write(t, d.beside(coming, "u1")+"/deep/file")
	write(t, d.beside(going, "u1")+"/deep/file")
	if all, err := s.List(); len(all) != 0 || err != nil {
		t.Errorf("%v, %v", all, err)
	}
	if err := s.Create(manifest("web", "u1"), "serve"); err != nil {
		t.Fatal(err)
	}
	if there(d.dirs.Pod("u1") + "/deep") {
		t.Error("it has what an earlier one left")
	}
	if err := s.Remove(t.Context(), "u1"); err != nil {
		t.Error(err)
	}
	if there(d.dirs.Pod("u1")) || there(d.beside(going, "u1")) {
		t.Error("it is still there")
	}
	write(t, d.beside(going, "u1")+"/deep/file")
	if err := s.Sweep(t.Context()); err != nil || there(d.beside(going, "u1")) {
		t.Error("not swept", err)
	}
}

// TestDeepVolume: a container has created thousands of nested directories in an emptyDir.
func TestDeepVolume(t *testing.T) {
	s, d := onOS(t)
	if err := s.Create(manifest("web", "u1"), "serve"); err != nil {
		t.Fatal(err)
	}
	dir := d.dirs.Revision("u1").EmptyDir("v")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	treetest.Deep(t, dir, 5000)
	treetest.FewDescriptors(t)
	if err := s.Remove(treetest.Timely(t), "u1"); err != nil || there(d.dirs.Pod("u1")) || there(d.beside(going, "u1")) {
		t.Error("not removed", err)
	}
}

// TestRemovalThatIsCutOff: the checkpoint is removed last.
func TestRemovalThatIsCutOff(t *testing.T) {
	t.Parallel()
	s, d := onOS(t)
	if err := s.Create(manifest("web", "u1"), "serve"); err != nil {
		t.Fatal(err)
	}
	write(t, d.dirs.Pod("u1")+"/a/file")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Remove(ctx, "u1"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if c, err := s.Get("u1"); err != nil || c.Key() != web {
		t.Errorf("%+v, %v", c, err)
	}
	if err := s.Remove(t.Context(), "u1"); err != nil || there(d.dirs.Pod("u1")) {
		t.Error("it is still there", err)
	}
}

// TestLink: a symbolic link in place of a directory is not followed.
func TestLink(t *testing.T) {
	t.Parallel()
	s, d := onOS(t)
	outside := t.TempDir()
	write(t, outside+"/precious")
	if err := errors.Join(os.MkdirAll(d.dirs.Pods(), 0o755), os.Symlink(outside, d.dirs.Pod("u1"))); err != nil {
		t.Fatal(err)
	}
	if err := s.Create(manifest("web", "u1"), "serve"); err == nil || there(outside+"/checkpoint.json") {
		t.Error("it was followed", err)
	}
	if err := s.Remove(t.Context(), "u1"); err != nil || there(d.dirs.Pod("u1")) || !there(outside+"/precious") {
		t.Error("it is still there, or was followed", err)
	}
	if err := s.Create(manifest("web", "u1"), "serve"); err != nil {
		t.Error(err)
	}
}

// TestOddFiles: whatever is at a checkpoint's path, reading it neither blocks nor hides other
// checkpoints.
func TestOddFiles(t *testing.T) {
	t.Parallel()
	for name, odd := range map[string]func(path string) error{
		"pipe":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"link":      func(path string) error { return os.Symlink("/etc/passwd", path) },
		"endless":   func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40)) },
	} {
		t.Run(name, func(t *testing.T) {
			s, d := onOS(t)
			if err := s.Create(manifest("web", "u1"), "serve"); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.Mkdir(d.dirs.Pod("odd"), 0o750), odd(d.Path("odd"))); err != nil {
				t.Fatal(err)
			}
			all, err := s.List()
			if err != nil || len(all) != 1 || len(s.Errors()) == 0 {
				t.Errorf("%v, %v", all, err)
			}
		})
	}
}

// TestFileBecomesOlder: once its modification time is old enough, a file is not read again and
// again.
func TestFileBecomesOlder(t *testing.T) {
	t.Parallel()
	s, d := onOS(t)
	if err := s.Create(manifest("web", "u1"), "serve"); err != nil {
		t.Fatal(err)
	}
	soon := time.Now().Add(time.Minute) // however long the test takes, the file is new
	if err := os.Chtimes(d.Path("u1"), soon, soon); err != nil {
		t.Fatal(err)
	}
	if _, stamp, err := d.Read("u1"); err != nil || stamp != (Stamp{}) {
		t.Errorf("just written: %+v, %v", stamp, err)
	}
	long := time.Now().Add(-time.Minute)
	if err := os.Chtimes(d.Path("u1"), long, long); err != nil {
		t.Fatal(err)
	}
	now, err := d.Stat("u1")
	if _, stamp, readErr := d.Read("u1"); err != nil || readErr != nil || stamp != now {
		t.Errorf("later: %+v, %+v, %v, %v", now, stamp, err, readErr)
	}
	if _, err := d.Stat("none"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestBadUIDs(t *testing.T) {
	t.Parallel()
	onBothDisks(t, func(s suite) {
		for _, uid := range []pod.UID{"", ".", "..", "../x", "a/b", "a\x00b"} {
			_, err := s.store.Get(uid)
			c := &Checkpoint{Pod: manifest("web", uid)}
			for _, err := range []error{
				err, s.store.Create(c.Pod, "serve"), s.store.Restore(c), s.store.Update(uid, evict("x")), s.store.Remove(t.Context(), uid),
			} {
				if err == nil || errors.Is(err, ErrNotFound) {
					t.Errorf("%q: %v", uid, err)
				}
			}
		}
	})
}

// TestDirectoryInPlace: a directory at a checkpoint's path is moved aside by the checkpoint that
// replaces it.
func TestDirectoryInPlace(t *testing.T) {
	t.Parallel()
	s, d := onOS(t)
	for range 2 {
		if err := os.RemoveAll(d.Path("u1")); err != nil {
			t.Fatal(err)
		}
		write(t, d.Path("u1")+"/deep/file")
		s = NewStoreOn(d, s.log) // one that knows nothing of the pod
		if err := s.Create(manifest("web", "u1"), "serve"); err != nil {
			t.Error(err)
		}
		if all, err := s.List(); err != nil || len(all) != 1 || len(s.Errors()) > 0 {
			t.Errorf("%v, %v", all, err)
		}
	}
	if err := s.Remove(t.Context(), "u1"); err != nil || there(d.dirs.Pod("u1")) {
		t.Error("it is still there", err)
	}
}

// TestRemovalIsSynced: a removal that is repeated, or finished by the next podrun, is synced as well.
func TestRemovalIsSynced(t *testing.T) {
	t.Parallel()
	s, d := onOS(t)
	if err := s.Create(manifest("web", "u1"), "serve"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := test.WithoutSync(t, func() error { return s.Remove(t.Context(), "u1") }); !errors.Is(err, unix.EIO) {
			t.Errorf("removing on a disk that refuses each sync: %v", err)
		}
	}
	write(t, d.beside(going, "u2")+"/file") // what a podrun that was killed has left
	if err := test.WithoutSync(t, func() error { return s.Sweep(t.Context()) }); !errors.Is(err, unix.EIO) {
		t.Errorf("sweeping on a disk that refuses each sync: %v", err)
	}
	if err := errors.Join(s.Sweep(t.Context()), s.Remove(t.Context(), "u1")); err != nil {
		t.Error(err)
	}
}
