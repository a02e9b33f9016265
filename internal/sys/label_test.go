package sys

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys/treetest"
)

const someLabel = "system_u:object_r:container_file_t:s0:c1,c2"

// labelOf is the label of a file, of a link's own; "" if it has none.
func labelOf(t *testing.T, path string) string {
	t.Helper()
	b := make([]byte, 256)
	n, err := unix.Lgetxattr(path, labelName, b)
	if errors.Is(err, unix.ENODATA) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

// volumeBeside makes a volume with a directory in it, and another directory with a file of the same name outside.
func volumeBeside(t *testing.T) (volume, outside string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("labels are root's to set")
	}
	dir := t.TempDir()
	volume, outside = filepath.Join(dir, "volume"), filepath.Join(dir, "outside")
	for _, d := range []string{filepath.Join(volume, "real"), outside} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(volume, "link")); err != nil {
		t.Fatal(err)
	}
	return volume, outside
}

func TestLabelTree(t *testing.T) {
	t.Parallel()
	volume, outside := volumeBeside(t)
	if err := unix.Mkfifo(filepath.Join(volume, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := LabelTree(t.Context(), volume, someLabel); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "real", "real/file", "link", "fifo"} {
		if got := labelOf(t, filepath.Join(volume, name)); got != someLabel {
			t.Errorf("%q: %q", name, got)
		}
	}
	for _, path := range []string{outside, filepath.Join(outside, "file")} {
		if got := labelOf(t, path); got == someLabel {
			t.Errorf("%s is labelled", path)
		}
	}
	if err := LabelTree(t.Context(), filepath.Join(volume, "none"), someLabel); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
}

// TestLabelTreeAgain: what has the label is left alone, and so are its times; what is mounted read-only keeps what it has.
func TestLabelTreeAgain(t *testing.T) {
	t.Parallel()
	volume, _ := volumeBeside(t)
	file := filepath.Join(volume, "real", "file")
	changed := func() (at unix.Timespec) {
		var st unix.Stat_t
		if err := unix.Stat(file, &st); err != nil {
			t.Fatal(err)
		}
		return st.Ctim
	}
	if err := LabelTree(t.Context(), volume, someLabel); err != nil {
		t.Fatal(err)
	}
	before := changed()
	time.Sleep(20 * time.Millisecond) // the clock of files is coarse
	if err := LabelTree(t.Context(), volume, someLabel); err != nil || changed() != before {
		t.Errorf("labelled again: %v, %v, before %v", err, changed(), before)
	}
	fixed := filepath.Join(t.TempDir(), "fixed")
	if err := errors.Join(os.Mkdir(fixed, 0o700), Bind(volume, fixed), unix.Mount("", fixed, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")); err != nil {
		t.Skip("nothing can be mounted:", err)
	}
	defer func() { _ = unix.Unmount(fixed, unix.MNT_DETACH) }()
	if err := LabelTree(t.Context(), fixed, someLabel+",c3"); err != nil || labelOf(t, file) != someLabel {
		t.Errorf("read-only: %v, %q", err, labelOf(t, file))
	}
}

// TestLabelTreeIsNotLedAstray: a container that replaces a directory by a symbolic link while its
// volume is labelled does not cause anything outside to be labelled.
func TestLabelTreeIsNotLedAstray(t *testing.T) {
	t.Parallel()
	volume, outside := volumeBeside(t)
	defer treetest.Swap(t, filepath.Join(volume, "real"), filepath.Join(volume, "link"))()
	for range 5000 {
		if err := LabelTree(t.Context(), volume, someLabel); err != nil {
			t.Fatal(err)
		}
		if labelOf(t, filepath.Join(outside, "file")) != "" {
			t.Fatal("a file outside is labelled")
		}
	}
}

// TestLabelDeepTree: a tree with more nested directories than a process may have open is labelled
// completely.
func TestLabelDeepTree(t *testing.T) {
	volume, _ := volumeBeside(t)
	const depth = 3000
	treetest.Deep(t, volume, depth)
	treetest.FewDescriptors(t)
	if err := LabelTree(treetest.Timely(t), volume, someLabel); err != nil {
		t.Fatal(err)
	}
	labelled := 0
	root, err := OpenTree(volume)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	err = WalkTree(t.Context(), root, TreeVisitor{File: func(dir int, name string) error {
		if labelOf(t, FDPath(dir)+"/"+name) == someLabel {
			labelled++
		}
		return nil
	}})
	if err != nil || labelled < 2*depth {
		t.Errorf("labelled %d files, %v", labelled, err)
	}
	if err := RemoveTree(t.Context(), volume); err != nil {
		t.Fatal(err)
	}
}
