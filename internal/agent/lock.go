package agent

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
)

// ErrServing says that another podrun serve uses the same run directory. ErrEnding says that a
// podrun down does.
var (
	ErrServing = errors.New("podrun serve is running")
	ErrEnding  = errors.New("podrun down is running")
)

// forkTime is how long a child of a killed serve may still hold its files: from the fork until the
// exec.
const forkTime = time.Second

// serveLock is the path of the file that lockServe locks.
func serveLock(dirs layout.Dirs) string { return filepath.Join(dirs.Run, "serve.lock") }

// lockServe locks the run directory for one serve or down at a time. who is written to the lock's
// file. The kernel releases the lock of a process that was killed.
func lockServe(dirs layout.Dirs, who string) (*runLock, error) {
	path := serveLock(dirs)
	if err := os.MkdirAll(dirs.Run, layout.ModePassable); err != nil {
		return nil, fmt.Errorf("creating the run directory: %w", err)
	}
	f, err := openLock(path, os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("locking the run directory: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	for end := time.Now().Add(forkTime); errors.Is(err, unix.EWOULDBLOCK) && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
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
	return &runLock{file: f, path: path}, nil
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

// runLock is the lock of a run directory.
type runLock struct {
	file *os.File
	path string
}

func (l *runLock) unlock() { l.file.Close() }

// watch calls gone when the run directory is removed before ctx ends: other processes then do not
// find the lock any more.
func (l *runLock) watch(ctx context.Context, gone func()) {
	every := time.NewTicker(time.Second)
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
	text := make([]byte, len(commandDown))
	if n, _ := lock.ReadAt(text, 0); string(text[:n]) == commandDown {
		return ErrEnding
	}
	return ErrServing
}

// JustBegun reports that a serve started less than ago before now, so that it may not own its pods
// yet.
func JustBegun(dirs layout.Dirs, ago time.Duration) bool {
	info, err := os.Stat(serveLock(dirs))
	return err == nil && time.Since(info.ModTime()) < ago
}
