package sys

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys/treetest"
)

func TestDeepTree(t *testing.T) {
	const depth = 5000
	top := t.TempDir()
	treetest.Deep(t, top, depth)
	treetest.FewDescriptors(t)
	if _, files, err := TreeSize(treetest.Timely(t), top); err != nil || files != 3*depth+1 {
		t.Errorf("measured %d files, %v", files, err)
	}
	ended, end := context.WithCancel(t.Context())
	visited := 0
	root, err := OpenTree(top)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	err = WalkTree(ended, root, TreeVisitor{File: func(int, string) error {
		if visited++; visited == depth {
			end()
		}
		return nil
	}})
	if !errors.Is(err, context.Canceled) || visited != depth {
		t.Errorf("after %d files: %v", visited, err)
	}
	if err := RemoveTree(ended, top); !errors.Is(err, context.Canceled) {
		t.Errorf("removed after its end: %v", err)
	}
	if err := RemoveTree(treetest.Timely(t), top); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(top); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("not removed: %v", err)
	}
}

// TestWideTree: many files and directories side by side, some of them deeper than the number of
// directories that are open at a time.
func TestWideTree(t *testing.T) {
	top := t.TempDir()
	below := filepath.Join(top, strings.Repeat("d/", maxOpenDirs+5))
	const wide = 1000
	for i := range wide {
		dir := filepath.Join(top, strconv.Itoa(i), "x")
		if i%2 == 0 {
			dir = filepath.Join(below, strconv.Itoa(i), "x")
		}
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(dir+"/f", nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	// The way back leads over directories that were closed in the middle of reading.
	for i, dir := 0, top; i < maxOpenDirs+5; i, dir = i+1, dir+"/d" {
		for _, name := range []string{"0", "zz"} {
			more := filepath.Join(dir, "more"+name, "deep", strings.Repeat("e/", 2*maxOpenDirs))
			if err := os.MkdirAll(more, 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := 0
	if err := filepath.WalkDir(top, func(string, os.DirEntry, error) error { want++; return nil }); err != nil {
		t.Fatal(err)
	}
	if _, files, err := TreeSize(t.Context(), top); err != nil || files != int64(want) {
		t.Errorf("measured %d files, want %d; %v", files, want, err)
	}
	if err := RemoveTree(t.Context(), top); err != nil {
		t.Error(err)
	}
}

// TestTreeThatMoves: a walk that returns from a directory that was moved meanwhile continues where
// it was, and never goes anywhere else.
func TestTreeThatMoves(t *testing.T) {
	const depth = 3 * maxOpenDirs
	for name, c := range map[string]struct {
		moved []int // how deep, one after the other
		other bool  // is in its place then
		lost  bool  // what was not visited yet above the first of them
	}{
		"the last":              {moved: []int{depth - 1}},
		"one that is open":      {moved: []int{depth - 3}},
		"one that is closed":    {moved: []int{maxOpenDirs}},
		"the first":             {moved: []int{1}},
		"another in its place":  {moved: []int{maxOpenDirs}, other: true},
		"the root":              {moved: []int{0}},
		"two that are closed":   {moved: []int{maxOpenDirs, maxOpenDirs / 2}, lost: true},
		"one and the first":     {moved: []int{maxOpenDirs, 1}, lost: true},
		"and others instead":    {moved: []int{maxOpenDirs, maxOpenDirs / 2}, other: true, lost: true},
		"two, the higher first": {moved: []int{maxOpenDirs / 2, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			treetest.Deep(t, parent, depth+1)
			top, outside := filepath.Join(parent, "d"), filepath.Join(parent, "outside")
			root, err := OpenTree(top)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			move := func(to int) error {
				from := filepath.Join(top, strings.Repeat("d/", to))
				err := errors.Join(os.MkdirAll(outside, 0o700), os.Rename(from, filepath.Join(outside, strconv.Itoa(to))))
				if err == nil && c.other {
					err = errors.Join(os.Mkdir(from, 0o700), os.WriteFile(from+"/other", nil, 0o600))
				}
				return err
			}
			entered, visited := 0, map[uint64]bool{}
			err = WalkTree(t.Context(), root, TreeVisitor{
				Enter: func(int) error {
					if entered++; entered != depth {
						return nil
					}
					var err error
					for _, to := range c.moved {
						err = errors.Join(err, move(to))
					}
					return err
				},
				File: func(dir int, name string) error {
					var st unix.Stat_t
					err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
					visited[st.Ino] = visited[st.Ino] || name != "other"
					return err
				},
			})
			if err != nil {
				t.Error(err)
			}
			all, got := 2*depth, len(visited)
			if !c.lost && got != all || c.lost && got < 2*(depth-maxOpenDirs) {
				t.Errorf("visited %d files of %d", got, all)
			}
		})
	}
}

// TestTreeRace: a directory is exchanged for a symbolic link that leads outside, while the tree is
// measured and removed.
func TestTreeRace(t *testing.T) {
	outside := t.TempDir()
	precious := filepath.Join(outside, "precious")
	if err := os.WriteFile(precious, make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		top := t.TempDir()
		at := filepath.Join(top, strings.Repeat("d/", 10))
		err := errors.Join(os.MkdirAll(at+"/dir", 0o700), os.WriteFile(at+"/dir/precious", nil, 0o600),
			os.Symlink(outside, at+"/link"))
		if err != nil {
			t.Fatal(err)
		}
		end := treetest.Swap(t, at+"/dir", at+"/link")
		for range 5 {
			if size, _, err := TreeSize(t.Context(), top); err != nil || size > 1<<20 {
				t.Errorf("measured %d bytes, %v", size, err)
			}
		}
		err = RemoveTree(t.Context(), top)
		end()
		if err = errors.Join(err, RemoveTree(t.Context(), top)); err != nil {
			t.Logf("in the first try: %v", err)
		}
		if _, err := os.Lstat(top); err == nil {
			t.Fatal("not removed")
		}
		if _, err := os.Lstat(precious); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRemoveTree(t *testing.T) {
	if err := RemoveTree(t.Context(), t.TempDir()+"/none/none"); err != nil {
		t.Error(err)
	}
	outside := t.TempDir()
	top := t.TempDir()
	for _, err := range []error{
		os.WriteFile(outside+"/precious", nil, 0o600), os.Symlink(outside, top+"/link"),
		unix.Mkfifo(top+"/fifo", 0o600), os.WriteFile(top+"/file", nil, 0o600), os.MkdirAll(top+"/a/b", 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"link", "fifo", "file", "a", ""} {
		if err := RemoveTree(t.Context(), filepath.Join(top, name)); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(filepath.Join(top, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there: %v", name, err)
		}
	}
	if _, err := os.Lstat(outside + "/precious"); err != nil {
		t.Error(err)
	}
}

// TestTreeMounts: what is mounted in a tree does not belong to it, even if it is of the same file
// system.
func TestTreeMounts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount")
	}
	outside, top := t.TempDir(), t.TempDir()
	mounted := filepath.Join(top, "d", "m")
	err := errors.Join(os.MkdirAll(mounted, 0o700), os.WriteFile(top+"/d/file", nil, 0o600),
		os.WriteFile(outside+"/precious", make([]byte, 1<<20), 0o600), unix.Mount(outside, mounted, "", unix.MS_BIND, ""))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(mounted, unix.MNT_DETACH) }()
	if size, files, err := TreeSize(t.Context(), top); err != nil || size >= 1<<20 || files != 3 {
		t.Errorf("measured %d bytes, %d files, %v", size, files, err)
	}
	for _, path := range []string{top, mounted} {
		if err := RemoveTree(t.Context(), path); err == nil {
			t.Errorf("%s: removed", path)
		}
	}
	left, err := os.ReadDir(top + "/d")
	names := slices.Collect(func(yield func(string) bool) {
		for _, e := range left {
			yield(e.Name())
		}
	})
	if !slices.Equal(names, []string{"m"}) {
		t.Errorf("left: %v, %v", names, err)
	}
	if _, err := os.Lstat(outside + "/precious"); err != nil {
		t.Error(err)
	}
}
