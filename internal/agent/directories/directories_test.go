package directories

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/test"
)

// TestMakeDirs: independent of the umask, a former version and the order, each directory has the
// mode of the table.
func TestMakeDirs(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	top := t.TempDir()
	dirs := layout.Dirs{Root: top + "/root", Run: top + "/run", Log: top + "/log"}
	old := []string{dirs.Claim("default", "data"), dirs.Pod("u"), dirs.Legacy().Etc("u"), dirs.SandboxFiles().Users("s"), dirs.StatusFiles().Dir()}
	for _, dir := range old {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	claim, link := dirs.Claim("default", "data"), filepath.Join(dirs.Claims(), "link")
	if err := os.Symlink(claim, link); err != nil {
		t.Fatal(err)
	}
	// As it was made before.
	for _, dir := range append(old, dirs.Root, dirs.Run, dirs.Claims(), filepath.Dir(claim)) {
		if err := os.Chmod(dir, 0o777|fs.ModeSetgid); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := Make(dirs.Modes()); err != nil {
			t.Fatal(err)
		}
		for dir, want := range map[string]fs.FileMode{
			dirs.Root: 0o700, dirs.Pods(): 0o700, dirs.Pod("u"): 0o700, dirs.Claims(): 0o700, filepath.Dir(claim): 0o700,
			claim:    0o777 | fs.ModeSetgid, // its users'
			dirs.Run: 0o711, dirs.StatusFiles().Dir(): 0o700, dirs.Legacy().Etcs(): 0o700, dirs.Legacy().Etc("u"): 0o700, dirs.SandboxFiles().Dir(): 0o700, dirs.Log: 0o755,
		} {
			info, err := os.Stat(dir)
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode() &^ fs.ModeDir; got != want {
				t.Errorf("%s: %v, want %v", dir, got, want)
			}
		}
	}
	if _, err := os.Stat(dirs.Networks().Bridge()); err == nil {
		t.Error("what nobody needs is made")
	}
	if err := os.Chmod(dirs.Log, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := Make(dirs.Modes()); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dirs.Log); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("the log directory is others' too: %v, %v", info.Mode(), err)
	}
}

// TestMakeDirsOfFileSystemThatHangs: podrun begins although the file system of the claims, or of one namespace's, does
// not answer.
func TestMakeDirsOfFileSystemThatHangs(t *testing.T) {
	for _, namespace := range []string{"", "default"} {
		top := t.TempDir()
		dirs := layout.Dirs{Root: top + "/root", Run: top + "/run", Log: top + "/log"}
		end := test.HangingMount(t, filepath.Join(dirs.Claims(), namespace))
		made := make(chan error, 1)
		go func() { made <- Make(dirs.Modes()) }()
		select {
		case err := <-made:
			test.Must(t, err)
		case <-time.After(20 * time.Second):
			t.Errorf("of namespace %q: it waits", namespace)
		}
		end()
	}
}

// TestMakeDirsBesideFileSystemsOfOthers: podrun begins although what is mounted on the directory of the claims, or of a
// namespace's, cannot be changed, and leaves its mode as it is.
func TestMakeDirsBesideFileSystemsOfOthers(t *testing.T) {
	for _, namespace := range []string{"", "ns"} {
		top := t.TempDir()
		dirs := layout.Dirs{Root: top + "/root", Run: top + "/run", Log: top + "/log"}
		at, beside := filepath.Join(dirs.Claims(), namespace), filepath.Join(dirs.Claims(), "beside")
		test.Must(t, errors.Join(os.MkdirAll(at, 0o755), os.MkdirAll(beside, 0o755)))
		if err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_RDONLY, "mode=755"); err != nil {
			t.Skipf("needs to mount: %v", err)
		}
		defer func() { test.Must(t, unix.Unmount(at, 0)) }()
		test.Must(t, Make(dirs.Modes()))
		modes := map[string]os.FileMode{at: 0o755, beside: 0o700}
		if namespace == "" {
			delete(modes, beside)
		}
		for path, want := range modes {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: %v, %v", path, info.Mode(), err)
			}
		}
	}
}
