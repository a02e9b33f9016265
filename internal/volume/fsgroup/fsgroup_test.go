package fsgroup

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/test"
)

// TestGiveAgain: what belongs to the group already is not changed again, so that an attempt that was cut off is not in
// vain; what lacks the group or its rights, or has rights that it must not have, is.
func TestGiveAgain(t *testing.T) {
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]os.FileMode{"right": 0o644, "closed": 0o644, "others": 0o644, "setgid": 0o755} {
		must(os.WriteFile(filepath.Join(dir, name), nil, mode))
	}
	must(os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	must(os.Symlink("right", filepath.Join(dir, "link")))
	p := &v1.Pod{Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{FSGroup: new(int64(1234))}}}
	give := func() map[string]unix.Stat_t {
		t.Helper()
		volume, err := sys.OpenTree(dir)
		must(err)
		defer volume.Close()
		must(Give(t.Context(), volume, p))
		all := map[string]unix.Stat_t{}
		for _, name := range []string{"right", "closed", "others", "setgid", "sub", "link", "."} {
			var st unix.Stat_t
			must(unix.Lstat(filepath.Join(dir, name), &st))
			if st.Gid != 1234 {
				t.Errorf("%s belongs to %d", name, st.Gid)
			}
			all[name] = st
		}
		return all
	}
	first := give()
	time.Sleep(20 * time.Millisecond)                   // longer than the resolution of the kernel's times
	must(os.Chmod(filepath.Join(dir, "closed"), 0o600)) // for others: only the group gets its rights back
	must(os.Chown(filepath.Join(dir, "others"), -1, 0))
	must(os.Chmod(filepath.Join(dir, "setgid"), 0o775|os.ModeSetgid))
	second := give()
	for name, changed := range map[string]bool{
		"right": false, "sub": false, "link": false, ".": false, "closed": true, "others": true, "setgid": true,
	} {
		if got := first[name].Ctim != second[name].Ctim; got != changed {
			t.Errorf("%s: changed again: %t", name, got)
		}
		if name != "closed" && first[name].Mode != second[name].Mode {
			t.Errorf("%s: mode %o, then %o", name, first[name].Mode, second[name].Mode)
		}
	}
}

// TestGiveWhatIsNotRefused: one file that nobody can give away keeps no other from the group.
func TestGiveWhatIsNotRefused(t *testing.T) {
	dir := t.TempDir()
	names := []string{"a", "b", "c"}
	for _, name := range names {
		test.Must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	refused := filepath.Join(dir, "b")
	const immutable = 0x10 // FS_IMMUTABLE_FL
	flag := func(flags int) error {
		file, err := os.Open(refused)
		test.Must(t, err)
		defer file.Close()
		return unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, flags)
	}
	if err := flag(immutable); err != nil {
		t.Skipf("the file system has no immutable files: %v", err)
	}
	defer func() { test.Must(t, flag(0)) }()
	volume, err := sys.OpenTree(dir)
	test.Must(t, err)
	defer volume.Close()
	p := &v1.Pod{Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{FSGroup: new(int64(1234))}}}
	var not *RefusedError
	if err := Give(t.Context(), volume, p); !errors.As(err, &not) || not.Count != 1 || !errors.Is(err, unix.EPERM) {
		t.Errorf("got %v", err)
	}
	for _, name := range append(names, ".") {
		var st unix.Stat_t
		test.Must(t, unix.Lstat(filepath.Join(dir, name), &st))
		if given := st.Gid == 1234; given == (name == "b") {
			t.Errorf("%s is given: %t", name, given)
		}
	}
}
