// Package directories creates podrun's directories with the modes of package layout, and repairs the
// modes of existing ones.
//
// Begin reading at Make.
package directories

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys"
)

// Make creates podrun's directories and repairs the modes of existing ones, which a former
// version, a umask or another program may have changed.
func Make(modes []layout.Mode) error {
	for _, m := range modes {
		if m.Own {
			if err := sys.MkdirOwn(m.Path, m.Mode); err != nil {
				return err
			}
		}
		err := makeDir(m)
		if err == nil && m.Entries {
			err = repairEntries(m)
		}
		if err == nil && m.Unrelated {
			err = sys.Spread(m.Path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func makeDir(m layout.Mode) error {
	info, err := os.Stat(m.Path)
	switch {
	case err == nil && !info.IsDir():
		return &fs.PathError{Op: "mkdir", Path: m.Path, Err: unix.ENOTDIR}
	case err == nil && m.Shared, m.Lazy && errors.Is(err, fs.ErrNotExist):
		return nil
	case m.Lazy:
		return repair(m.Path, m.Mode)
	}
	if err := os.MkdirAll(m.Path, m.Mode); err != nil {
		return err
	}
	// The umask may have cleared bits.
	return repair(m.Path, m.Mode)
}

// repairEntries sets the mode of the directories in m's directory. It does not follow links, and
// ignores entries that disappear meanwhile.
func repairEntries(m layout.Mode) error {
	entries, err := os.ReadDir(m.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if err := repair(filepath.Join(m.Path, e.Name()), m.Mode); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func repair(dir string, mode fs.FileMode) error {
	info, err := os.Stat(dir)
	if err != nil || info.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) == mode {
		return err
	}
	return os.Chmod(dir, mode)
}
