package images

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/core/mount"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/sys"
)

// viewName is what files are shown at, in a directory that is locked meanwhile.
const viewName = "files"

// withFiles shows the files of a snapshot to f: read-only, in a directory of root's alone, and so that no program in
// there runs and no device is one. What a podrun that was killed has left is removed by the next.
func (s *Store) withFiles(mounts []mount.Mount, f func(root string) error) error {
	if err := s.SweepViews(); err != nil {
		s.o.Log.Warn("files of images stay mounted", "why", err)
	}
	dirs := s.o.Dirs
	if err := errors.Join(os.MkdirAll(dirs.Run, layout.ModePassable), os.MkdirAll(dirs.ImageViews(), layout.ModePrivate)); err != nil {
		return err
	}
	lock, err := sys.LockDir(filepath.Join(dirs.ImageViews(), rand.Text()), layout.ModePrivate)
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

// SweepViews removes the views of podruns that were killed, and no others.
func (s *Store) SweepViews() error {
	entries, err := os.ReadDir(s.o.Dirs.ImageViews())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		dir := filepath.Join(s.o.Dirs.ImageViews(), e.Name())
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

// removeView unmounts what is in a directory of a view and removes it. Whoever removes it has it locked.
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
	// Not with what is in them, whatever that is.
	for _, path := range []string{root, dir} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
