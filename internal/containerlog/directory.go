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
// is refused. So what podrun makes, renames and removes there are its own files, and no log gets the group of somebody
// else's directory. What they may only write is accepted: whoever owns it let them.
func openLogDir(log string, create bool) (*os.File, error) {
	at, names := split(log)
	if create {
		if err := os.MkdirAll(at, layout.ModeLogs); err != nil {
			return nil, err
		}
	}
	dir, err := os.OpenFile(at, unix.O_PATH|unix.O_DIRECTORY, 0) // trusted: only opened as a path
	for i := 0; err == nil; i++ {
		if err = verify(dir, at); err == nil && i == 2 {
			return dir, nil
		}
		within := dir
		at = filepath.Join(at, names[i])
		switch {
		case err != nil:
		case create:
			dir, err = sys.MkdirIn(within, names[i], layout.ModeLogs)
		default:
			dir, err = sys.OpenBeneath(within, names[i], sys.NoLinks, unix.O_PATH|unix.O_DIRECTORY)
		}
		within.Close()
	}
	return nil, err
}

// verify returns an own.LooseError if others own the directory.
func verify(dir *os.File, path string) error {
	info, err := dir.Stat()
	if err == nil {
		err = own.Loose(path, info, true)
	}
	var loose *own.LooseError
	if errors.As(err, &loose) && !loose.Owned {
		return nil
	}
	return err
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
