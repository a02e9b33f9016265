package connection

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
)

// TestBind: the pods of a run directory are in one namespace of one containerd at a time.
func TestBind(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Run: t.TempDir()}
	own := binding{Embedded, "podrun", "boot", ""}
	left := true // something of pods
	enter := func(p binding) (func(), error) {
		return bind(dirs, p, func(string) (bool, error) { return !left, nil })
	}
	must := func(p binding) func() {
		t.Helper()
		leave, err := enter(p)
		if err != nil {
			t.Fatal(err)
		}
		return leave
	}
	refused := func(p binding, want ...string) {
		t.Helper()
		_, err := enter(p)
		var elsewhere *ElsewhereError
		if !errors.As(err, &elsewhere) {
			t.Fatalf("%v: %v", p, err)
		}
		for _, w := range want {
			if !strings.Contains(err.Error()+elsewhere.Hint(), w) {
				t.Errorf("%s; %s: want %q", err, elsewhere.Hint(), w)
			}
		}
	}
	must(own)() // also where an older podrun's pods are
	first, second := must(own), must(own)
	namespace, system := binding{Embedded, "other", "boot", ""}, binding{"/run/c.sock", "podrun", "boot", ""}
	refused(namespace, dirs.Run, "namespace podrun of podrun's own containerd", "--containerd-address embedded --containerd-namespace podrun")
	first()
	second()
	refused(system, dirs.Binding())
	left = false
	leave := must(system)
	left = true
	must(binding{"/run/moved.sock", "podrun", "boot", ""})()
	left = false
	refused(own, "the containerd at /run/c.sock") // the other has none yet, and may at any moment
	leave()
	left = true
	refused(own)
	must(binding{Embedded, "podrun", "next boot", ""})() // nothing runs of what did
	refused(binding{"/run/c.sock", "podrun", "next boot", ""})
	if err := os.WriteFile(dirs.Binding(), []byte("next boot\npodr"), 0o600); err != nil { // cut off
		t.Fatal(err)
	}
	must(own)()
}

// TestBindToRoot: the pods of a run directory have their checkpoints in one root directory, whatever its path is. As
// long as they are there, another podrun with another one is refused, and changes nothing.
func TestBindToRoot(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	dirs := layout.Dirs{Run: top}
	if err := errors.Join(os.Mkdir(top+"/a", 0o700), os.Mkdir(top+"/b", 0o700), os.Symlink("a", top+"/link")); err != nil {
		t.Fatal(err)
	}
	left := map[string]bool{top + "/a": true}
	enter := func(root string) error {
		leave, err := bind(dirs, binding{Embedded, "podrun", "boot", root}, func(root string) (bool, error) { return !left[root], nil })
		if err == nil {
			leave()
		}
		return err
	}
	wanted := func(root string, refused bool) {
		t.Helper()
		before, _ := os.ReadFile(dirs.Binding())
		err := enter(root)
		var elsewhere *ElsewhereError
		if errors.As(err, &elsewhere) != refused || !refused && err != nil {
			t.Fatalf("%s: %v", root, err)
		}
		if !refused {
			return
		}
		if text := err.Error() + elsewhere.Hint(); !strings.Contains(text, "with the root directory "+top+"/a") || !strings.Contains(text, " --root-dir "+top+"/a;") {
			t.Error(text)
		}
		if after, _ := os.ReadFile(dirs.Binding()); string(after) != string(before) {
			t.Errorf("it is changed: %s", after)
		}
	}
	wanted(top+"/a", false)
	wanted(top+"/b", true)
	wanted(top+"/link", false)
	wanted(top+"/none", true)
	left = nil
	wanted(top+"/b", false)
	// An older podrun's.
	if err := os.WriteFile(dirs.Binding(), []byte("boot\npodrun\nembedded\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	left = map[string]bool{top + "/a": true}
	wanted(top+"/a", false)
}

// TestRootInUse: podruns with one run directory share a root directory; one with another run directory gets it when they
// are gone. A full disk keeps nobody off.
func TestRootInUse(t *testing.T) {
	t.Parallel()
	root, one, two := t.TempDir(), t.TempDir(), t.TempDir()
	enter := func(run string) func() {
		t.Helper()
		leave, err := bindRoot(layout.Dirs{Root: root, Run: run})
		if err != nil {
			t.Fatal(err)
		}
		return leave
	}
	first, second := enter(one), enter(one)
	first()
	_, err := bindRoot(layout.Dirs{Root: root, Run: two})
	var inUse *RootInUseError
	if !errors.As(err, &inUse) || inUse.Run != one || !strings.Contains(inUse.Hint(), "--run-dir "+one) {
		t.Errorf("error %v", err)
	}
	second()
	enter(two)()
	enter(one)()
	if os.Getuid() != 0 {
		return
	}
	root = t.TempDir()
	if err := unix.Mount("none", root, "tmpfs", 0, "size=4k,nr_inodes=9"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	if err := os.WriteFile(root+"/full", make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	third := enter(one)
	enter(one)()
	third()
}
