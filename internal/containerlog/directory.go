package containerlog

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/own"
)

// openLogDir opens the directory of a log. If create is set, it makes that, and what leads there, unless it exists. A
// group may be able to write the log directory, or to replace it: below it, no links are followed, and what others own
// or may write is refused. So what podrun makes, renames and removes there are its own files, and no log gets the group
// of somebody else's directory.
func openLogDir(log string, create bool) (*os.File, error) {
	at, names := split(log)
	if create {
		if err := os.MkdirAll(at, layout.ModeLogs); err != nil {
			return nil, err
		}
	}
	dir, err := os.OpenFile(at, unix.O_PATH|unix.O_DIRECTORY, 0) // trusted: only opened as a path
	if err != nil {
		return nil, err
	}
	var loose *own.LooseError
	if err := verify(dir, at); err != nil && (!errors.As(err, &loose) || loose.Owned) { // a group may write it
		return nil, errors.Join(err, dir.Close())
	}
	for _, name := range names[:2] {
		at = filepath.Join(at, name)
		within := dir
		if create {
			dir, err = sys.MkdirBeneath(sys.FDPath(int(within.Fd())), layout.ModeLogs, name)
		} else {
			dir, err = sys.OpenBeneath(within, name, sys.NoLinks, unix.O_PATH|unix.O_DIRECTORY)
		}
		within.Close()
		if err != nil {
			return nil, err
		}
		if err := verify(dir, at); err != nil {
			return nil, errors.Join(err, dir.Close())
		}
	}
	return dir, nil
}

// verify returns an own.LooseError if others own the directory or may write it.
func verify(dir *os.File, path string) error {
	info, err := dir.Stat()
	if err != nil {
		return err
	}
	return own.Loose(path, info, true)
}

// isOfOthers reports that others have put something in the place of a log's directory.
func isOfOthers(err error) bool {
	var loose *own.LooseError
	return errors.As(err, &loose) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR)
}

// split returns the log directory and the names of what leads from there to one of a log's files: the
// directories of the pod and the container, and the file.
func split(path string) (root string, names []string) {
	container := filepath.Dir(path)
	pod := filepath.Dir(container)
	return filepath.Dir(pod), []string{filepath.Base(pod), filepath.Base(container), filepath.Base(path)}
}
