// Package own says who, other than root and podrun's own user, can change a file or directory or
// what is on the way to it (Loose, LooseOnWay), and creates and checks the directories that nobody
// else may change (Mkdir).
//
// Begin reading at Mkdir and LooseOnWay.
package own

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Mkdir creates a directory of podrun's own, with its parents, unless it exists, and gives it the
// mode. It returns an error if another user could replace the directory, or anything on the way to
// it, because root runs and trusts what is in it. Each component is checked after it was created,
// before anything is done beneath it, so that nobody can create it in between.
func Mkdir(path string, mode fs.FileMode) error { return create(path, mode, false, false) }

// MkdirKept is Mkdir for a directory that other programs have too. The mode of one that exists is left as it is, unless
// other users may write it.
func MkdirKept(path string, mode fs.FileMode) error { return create(path, mode, false, true) }

// MkdirShared is Mkdir for a directory in which root writes files, but does not trust what is there:
// groups may write it and what is on the way to it, as syslog may in Ubuntu's /var/log. The mode of
// a directory that exists is left as it is, unless every user may write it.
func MkdirShared(path string, mode fs.FileMode) error { return create(path, mode, true, true) }

func create(path string, mode fs.FileMode, shared, kept bool) error {
	return refused(path, func() error {
		created := false
		at, err := way(path, shared, func(dir string) error {
			created = true
			return mkdir(dir, mode)
		})
		if err != nil {
			return err
		}
		return onDir(at, func(dir *os.File, info fs.FileInfo) error {
			keep := kept && !created && accept(Loose(at, info, true), true) == nil
			if keep || modeOf(info) == mode {
				return nil
			}
			// Also if it was created: the umask may have cleared bits.
			if err := dir.Chmod(mode); err != nil {
				return err
			}
			// From here on nobody else can add anything.
			if err := foreign(dir, info); err != nil {
				return errors.Join(err, dir.Chmod(modeOf(info)))
			}
			return nil
		})
	})
}

// Check returns the error of Mkdir, or if shared is set that of MkdirShared, for a directory that
// exists, and changes nothing. What does not exist, or podrun's user may not look at, is no error: a
// command that needs it will find out.
func Check(path string, shared bool) error {
	err := refused(path, func() error {
		at, err := way(path, shared, nil)
		if err != nil {
			return err
		}
		return onDir(at, func(dir *os.File, info fs.FileInfo) error {
			if accept(Loose(at, info, true), shared) == nil {
				return nil
			}
			return foreign(dir, info)
		})
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return err
}

// refused returns the error of do; if that is a LooseError, it says what follows from it.
func refused(path string, do func() error) error {
	err := do()
	if loose := (*LooseError)(nil); errors.As(err, &loose) {
		return fmt.Errorf("%s is refused, because another user could replace what is in it: %w, or choose another directory",
			path, err)
	}
	return err
}

// accept returns err, but not if it is about a group and groups are accepted.
func accept(err error, groups bool) error {
	if loose := (*LooseError)(nil); groups && errors.As(err, &loose) && loose.ByGroup {
		return nil
	}
	return err
}

// way walks to the directory at path and returns its path without links, or the first LooseError on
// the way.
func way(path string, groups bool, missing func(dir string) error) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return walk(path, func(at string, info fs.FileInfo) error {
		return accept(Loose(at, info, false), groups)
	}, missing)
}

func mkdir(dir string, mode fs.FileMode) error {
	if err := os.Mkdir(dir, mode); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil // somebody has just created it; whoever it is, it is checked
}

// onDir opens a directory, which must not be a link, and calls do unless another user owns it.
func onDir(path string, do func(dir *os.File, info fs.FileInfo) error) error {
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	info, err := dir.Stat()
	if err != nil {
		return err
	}
	var loose *LooseError
	if err := Loose(path, info, false); errors.As(err, &loose) && loose.Owned {
		return err
	}
	return do(dir, info)
}

// foreign returns a LooseError if other users may write a directory, of which info is, and one of
// them owns something in it: they may have put it there.
func foreign(dir *os.File, info fs.FileInfo) error {
	if Loose(dir.Name(), info, true) == nil {
		return nil
	}
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir.Name(), e.Name())
		var loose *LooseError
		if info, err := os.Lstat(path); err == nil && errors.As(Loose(path, info, false), &loose) && loose.Owned {
			return &LooseError{Path: path, Why: loose.Why + ", if it is what should be there", Owned: true}
		}
	}
	return nil
}

func modeOf(info fs.FileInfo) fs.FileMode {
	return info.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
}
