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
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/mounted"
	"podrun.io/podrun/internal/sys/own"
)

// Make creates podrun's directories and repairs the modes of existing ones, which a former
// version, a umask or another program may have changed. It returns an error if another user could
// replace one. What is on a file system that does not answer is repaired as soon as that does.
func Make(modes []layout.Mode) error {
	for _, m := range modes {
		makeIt := makeOne
		if m.Foreign {
			makeIt = makeInTime
		}
		if err := makeIt(m); err != nil {
			return err
		}
	}
	return nil
}

// patience is how long a file system may take to answer, before podrun goes on without it.
const patience = 3 * time.Second

// makeInTime is makeOne, for which nobody waits longer than patience.
func makeInTime(m layout.Mode) error {
	made := make(chan error, 1)
	go func() { made <- makeOne(m) }()
	select {
	case err := <-made:
		return err
	case <-time.After(patience):
		return nil
	}
}

func makeOne(m layout.Mode) error {
	err := makeDir(m)
	if err == nil && m.Entries {
		err = repairEntries(m)
	}
	if err == nil && m.Unrelated {
		err = sys.Spread(m.Path)
	}
	if err != nil && m.Foreign && isOthers(m.Path, filepath.Dir(m.Path)) {
		return nil // the pods that need it say so
	}
	return err
}

// Check returns an error if another user could replace one of the existing directories, and changes
// nothing.
func Check(modes []layout.Mode) error {
	for _, m := range modes {
		if !m.Own {
			continue
		}
		if err := own.Check(m.Path, m.Shared); err != nil {
			return err
		}
	}
	return nil
}

func makeDir(m layout.Mode) error {
	switch {
	case m.Own && m.Shared:
		return own.MkdirShared(m.Path, m.Mode)
	case m.Own:
		return own.Mkdir(m.Path, m.Mode)
	}
	// What is above is podrun's own.
	if !m.Lazy {
		if err := os.MkdirAll(m.Path, m.Mode); err != nil {
			return err
		}
	}
	if err := repair(m.Path, m.Mode, 0); !m.Lazy || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
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
		if !e.IsDir() || m.Foreign && isOthers(filepath.Join(m.Path, e.Name()), m.Path) {
			continue
		}
		err := repair(filepath.Join(m.Path, e.Name()), m.Mode, unix.O_NOFOLLOW)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// isOthers reports that what is at path in a directory is a file system of its own, or fails. Its modes are those of
// who has made it, and others do not reach it through the directory.
func isOthers(path, dir string) bool {
	is, err := mounted.At(path, dir)
	return is || err != nil && !errors.Is(err, fs.ErrNotExist)
}

// repair sets the mode of a directory. The directory is opened once, with the flags, so that nothing
// else gets the mode, whatever has its name meanwhile.
func repair(path string, mode fs.FileMode, flags int) error {
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|flags, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	info, err := dir.Stat()
	if err != nil || info.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) == mode {
		return err
	}
	return dir.Chmod(mode)
}
