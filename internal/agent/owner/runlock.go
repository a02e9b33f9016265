package owner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/own"
)

// serveLock is the path of the file that LockRun locks.
func serveLock(dirs layout.Dirs) string { return filepath.Join(dirs.Run, "serve.lock") }

// LockRun locks the run directory for one serve or down at a time. who is Serve or Down. If another
// process holds the lock, the error is ErrServing or ErrEnding.
func LockRun(dirs layout.Dirs, who string) (*RunLock, error) {
	path := serveLock(dirs)
	if err := own.Mkdir(dirs.Run, layout.ModePassable); err != nil {
		return nil, fmt.Errorf("creating the run directory: %w", err)
	}
	f, err := openLock(path, os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("locking the run directory: %w", err)
	}
	err = AfterForks(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w on %s", lockHolder(f), dirs.Run)
		}
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	if f.Truncate(0) == nil {
		_, _ = f.WriteString(who) // if this fails, as on a full disk, the owner is taken for a serve
	}
	return &RunLock{file: f, path: path}, nil
}

var errNoLock = errors.New("the lock file is a link or not a regular file; remove it")

// openLock opens a file that other processes lock too. It refuses symbolic links, hard links and
// files that are not regular: the open file would not be the one that the path names, or podrun
// would write to somebody else's file.
func openLock(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|flag, 0o600)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENXIO) {
		return nil, &os.PathError{Op: "open", Path: path, Err: errNoLock}
	}
	if err != nil {
		return nil, err
	}
	var is unix.Stat_t
	switch err := unix.Fstat(int(f.Fd()), &is); {
	case err != nil:
		f.Close()
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	case is.Mode&unix.S_IFMT != unix.S_IFREG || is.Nlink > 1:
		f.Close()
		return nil, &os.PathError{Op: "open", Path: path, Err: errNoLock}
	}
	return f, nil
}

// RunLock is the lock of a run directory.
type RunLock struct {
	file *os.File
	path string
}

// Unlock releases the lock.
func (l *RunLock) Unlock() { l.file.Close() }

// Watch calls gone when the run directory is removed before ctx ends: other processes then do not
// find the lock any more.
func (l *RunLock) Watch(ctx context.Context, gone func()) {
	every := time.NewTicker(5 * time.Second)
	defer every.Stop()
	for {
		if sys.Elsewhere(l.file, l.path) {
			gone()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// lockHolder returns ErrServing or ErrEnding, depending on who holds the lock.
func lockHolder(lock io.ReaderAt) error {
	text := make([]byte, len(Down))
	if n, _ := lock.ReadAt(text, 0); string(text[:n]) == Down {
		return ErrEnding
	}
	return ErrServing
}

// Serving reports that a podrun serve or down, of any version, holds the lock of the run directory.
func Serving(dirs layout.Dirs) bool {
	f, err := os.Open(serveLock(dirs))
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}
