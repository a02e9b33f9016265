package images

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/core/mount"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys"
)

// viewName is the name of the directory at which files are mounted, inside a directory that is
// locked meanwhile.
const viewName = "files"

// withFiles mounts the files of a snapshot and calls f with the path of the mount. The mount is
// read-only, in a directory that only root can access, and neither programs nor devices work in it.
// The next call removes what a podrun that was killed has left.
func (s *Store) withFiles(mounts []mount.Mount, f func(root string) error) error {
	if err := s.SweepViews(); err != nil {
		s.o.Log.Warn("mounts of image files cannot be removed", "err", err)
	}
	dirs := s.o.Dirs
	if err := errors.Join(
		os.MkdirAll(dirs.Run, layout.ModePassable),
		os.MkdirAll(dirs.ImageFiles().Views(), layout.ModePrivate),
	); err != nil {
		return err
	}
	lock, err := sys.LockDir(filepath.Join(dirs.ImageFiles().Views(), rand.Text()), layout.ModePrivate)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	root := filepath.Join(lock.Path(), viewName)
	if err := os.Mkdir(root, layout.ModePrivate); err != nil {
		return err
	}
	err = mountFiles(mounts, root, sys.AllowNothing)
	if err == nil {
		err = f(root)
	}
	return errors.Join(err, removeView(lock.Path()))
}

// SweepViews removes the mounts that killed podruns left, and no others.
func (s *Store) SweepViews() error {
	entries, err := os.ReadDir(s.o.Dirs.ImageFiles().Views())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		dir := filepath.Join(s.o.Dirs.ImageFiles().Views(), e.Name())
		lock, err := sys.TryLockExisting(dir)
		if errors.Is(err, sys.ErrLocked) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = removeView(dir)
			lock.Unlock()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// removeView unmounts everything at a view's mount point and removes the view's directory. The
// caller has locked the directory.
func removeView(dir string) error {
	root := filepath.Join(dir, viewName)
	for {
		err := sys.Detach(root)
		if errors.Is(err, sys.ErrNotMounted) {
			break
		}
		if err != nil {
			return err
		}
	}
	// os.Remove, not a recursive removal: whatever is in the directories is not removed.
	for _, path := range []string{root, dir} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
