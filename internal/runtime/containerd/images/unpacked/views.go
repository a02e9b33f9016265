package unpacked

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/core/mount"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/own"
)

// viewName is the name of the directory at which files are mounted, inside a directory that is
// locked meanwhile.
const viewName = "files"

// Views mount the files of images for a moment.
type Views struct {
	dirs layout.Dirs
	log  *slog.Logger
}

// NewViews returns the Views below the run directory.
func NewViews(dirs layout.Dirs, log *slog.Logger) *Views { return &Views{dirs: dirs, log: log} }

// with mounts the files of a snapshot and calls f with the path of the mount. The mount is
// read-only, in a directory that only root can access, and neither programs nor devices work in it.
// The next call removes what a podrun that was killed has left.
func (v *Views) with(mounts []mount.Mount, f func(root string) error) error {
	if err := v.SweepViews(); err != nil {
		v.log.Warn("mounts of image files cannot be removed", "err", err)
	}
	if err := own.Mkdir(v.dirs.Run, layout.ModePassable); err != nil {
		return err
	}
	if err := os.MkdirAll(v.dirs.ImageFiles().Views(), layout.ModePrivate); err != nil {
		return err
	}
	lock, err := sys.LockDir(filepath.Join(v.dirs.ImageFiles().Views(), rand.Text()), layout.ModePrivate)
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
func (v *Views) SweepViews() error {
	entries, err := os.ReadDir(v.dirs.ImageFiles().Views())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		dir := filepath.Join(v.dirs.ImageFiles().Views(), e.Name())
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
