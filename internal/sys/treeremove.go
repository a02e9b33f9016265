package sys

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// moreReadings is how often a directory is read again because it is not empty after its entries
// were removed: a file system may not list every file while others are removed, and another process
// may create new ones.
const moreReadings = 32

// RemoveTree removes path and everything in it, like os.RemoveAll, but with few descriptors however
// deep the tree is. It does not remove anything through a symbolic link or a mount point. It
// removes as much as possible even if something cannot be removed, and returns the first error. If
// path does not exist, it returns nil.
func RemoveTree(ctx context.Context, path string) error {
	parent, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer parent.Close()
	return RemoveTreeIn(ctx, parent, filepath.Base(path))
}

// RemoveTreeIn is RemoveTree for a name in an open directory.
func RemoveTreeIn(ctx context.Context, in *os.File, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	parent, path := int(in.Fd()), filepath.Join(in.Name(), name)
	fail := func(err error) error { return &os.PathError{Op: "remove", Path: path, Err: err} }
	fd, err := openChild(parent, name)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		if err := unlink(parent, name); err != nil {
			return fail(err)
		}
		return nil
	case err != nil:
		return fail(err)
	}
	root := os.NewFile(uintptr(fd), path)
	defer root.Close()
	r := treeRemover{path: path}
	for tries, again := 0, true; again; tries++ {
		if err := WalkTree(ctx, root, TreeVisitor{File: r.file, Leave: r.leave, Unopened: r.unopened}); err != nil {
			return err
		}
		if again, err = r.leave(parent, name, tries); err != nil {
			return err
		}
	}
	return r.failed
}

// treeRemover removes what a walk visits.
type treeRemover struct {
	path   string
	failed error // the first error
}

func (r *treeRemover) file(dir int, name string) error {
	err := unlink(dir, name)
	if !errors.Is(err, unix.EISDIR) { // it is a directory by now; the next reading enters it
		r.note(name, err)
	}
	return nil
}

func (r *treeRemover) unopened(name string, err error) error {
	r.note(name, err)
	return nil
}

// leave removes a directory. If it is not empty, it is read again, unless the reason is known.
func (r *treeRemover) leave(parent int, name string, tries int) (again bool, err error) {
	err = unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR): // another process has removed or replaced it
	case errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST):
		if r.failed == nil && tries < moreReadings {
			return true, nil
		}
		r.note(name, err)
	default:
		r.note(name, err)
	}
	return false, nil
}

// note keeps the first error; err may be nil.
func (r *treeRemover) note(name string, err error) {
	if errors.Is(err, unix.EXDEV) {
		err = unix.EBUSY // something is mounted there; rmdir returns the same error
	}
	if err != nil && r.failed == nil {
		r.failed = &os.PathError{Op: "remove", Path: filepath.Join(r.path, "...", name), Err: err}
	}
}

func unlink(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
