package own

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// MkdirAll creates a directory that is not podrun's own, with its parents, unless it exists. It is os.MkdirAll, but
// that it follows only links of root's: what root creates is not to be where another user has led it.
func MkdirAll(path string, mode fs.FileMode) error {
	_, err := walk(path, func(at string, info fs.FileInfo) error {
		if info.Mode()&fs.ModeSymlink == 0 {
			return nil
		}
		if err := Loose(at, info, false); err != nil {
			return fmt.Errorf("the link %w", err)
		}
		return nil
	}, func(dir string) error { return mkdirAlong(dir, mode) })
	return err
}

// mkdirAlong creates a directory whose path has no links, also if somebody puts one there meanwhile.
func mkdirAlong(dir string, mode fs.FileMode) error {
	fail := func(err error) error { return &fs.PathError{Op: "mkdir", Path: dir, Err: err} }
	parent, err := unix.Openat2(unix.AT_FDCWD, filepath.Dir(dir), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return fail(err)
	}
	defer unix.Close(parent)
	if err := unix.Mkdirat(parent, filepath.Base(dir), uint32(mode.Perm())); err != nil && !os.IsExist(err) {
		return fail(err)
	}
	return nil
}
