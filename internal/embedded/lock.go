package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/layout"
)

// The lock files in the state directory. They are never removed: a lock on a removed file guards nothing.
//
//	users.lock   shared by every client; the daemon ends only while it holds it alone
//	start.lock   held by the client that starts the daemon
//	daemon.lock  held by the daemon; its content is the daemon's pid, for people
//
// The daemon holds a second one in the root directory, which must have one daemon only as well; its second line is the
// daemon's run directory.
func usersLock(d layout.Dirs) string  { return filepath.Join(d.ContainerdState(), "users.lock") }
func startLock(d layout.Dirs) string  { return filepath.Join(d.ContainerdState(), "start.lock") }
func daemonLock(d layout.Dirs) string { return filepath.Join(d.ContainerdState(), "daemon.lock") }
func rootLock(d layout.Dirs) string   { return filepath.Join(d.Containerd(), "daemon.lock") }

// lockPoll is how often a lock that others hold for moments only is tried again.
const lockPoll = 2 * time.Millisecond

func openLock(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
}

// tryFlock takes the lock (unix.LOCK_SH or LOCK_EX) unless somebody holds it.
func tryFlock(f *os.File, how int) (bool, error) {
	switch err := flock(f, how|unix.LOCK_NB); {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return false, nil
	default:
		return false, err
	}
}

// flock blocks without LOCK_NB.
func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("locking %s: %w", f.Name(), err)
		}
		return nil
	}
}

// acquire opens the file and takes its lock, until ctx ends. Closing the file releases the lock.
func acquire(ctx context.Context, path string, how int) (*os.File, error) {
	f, err := openLock(path)
	if err != nil {
		return nil, err
	}
	for {
		ok, err := tryFlock(f, how)
		if err == nil && ok {
			return f, nil
		}
		if err == nil {
			err = pause(ctx, lockPoll)
		}
		if err != nil {
			f.Close()
			return nil, err
		}
	}
}

// pin takes over f's lock and returns it as a descriptor, which the garbage collector never closes.
func pin(f *os.File) (int, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	f.Close()
	return fd, err
}

// lockDaemon takes a daemon's lock; ErrRunning when another daemon has it. It is an open file
// description lock, so that Running can ask for it without taking it, even for a moment.
func lockDaemon(path, more string) (*os.File, error) {
	f, err := openLock(path)
	if err != nil {
		return nil, err
	}
	l := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l); err != nil {
		f.Close()
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
			return nil, ErrRunning
		}
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = fmt.Fprintf(f, "%d\n%s", os.Getpid(), more)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Running reports whether a daemon of these directories is there; it may still be starting, or ending.
func Running(d layout.Dirs) bool {
	f, err := os.Open(daemonLock(d))
	if err != nil {
		return false
	}
	defer f.Close()
	l := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &l); err != nil {
		return false
	}
	return l.Type != unix.F_UNLCK
}

// pause waits for d, or returns ctx's error.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
