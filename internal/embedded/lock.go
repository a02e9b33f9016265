package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
)

// The lock files in the state directory. They are never removed, because a lock on a removed file has
// no effect.
//
//	users.lock   shared by all clients; the daemon exits only while it holds it exclusively
//	start.lock   held by the client that starts the daemon
//	daemon.lock  held by the daemon; contains the daemon's process ID, for users to read
//
// The time of the file "warm" is that of the last Lease.KeepWarm.
//
// The daemon holds a second daemon.lock in the root directory, which must have only one daemon as well.
// Its second line is the daemon's run directory.
func usersLock(d layout.Dirs) string  { return filepath.Join(d.Embedded().State(), "users.lock") }
func startLock(d layout.Dirs) string  { return filepath.Join(d.Embedded().State(), "start.lock") }
func daemonLock(d layout.Dirs) string { return filepath.Join(d.Embedded().State(), "daemon.lock") }
func warmMark(d layout.Dirs) string   { return filepath.Join(d.Embedded().State(), "warm") }
func rootLock(d layout.Dirs) string   { return filepath.Join(d.Embedded().Data(), "daemon.lock") }

// lockPoll is how often a lock is tried again that other processes hold only for moments.
const lockPoll = 2 * time.Millisecond

func openLock(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
}

// tryFlock acquires the lock (unix.LOCK_SH or LOCK_EX) and reports true, or false if another holds
// it.
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

// flock locks or unlocks f. It blocks, unless how contains LOCK_NB.
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

// acquire opens the file and waits for its lock until ctx ends. Closing the file releases the lock.
func acquire(ctx context.Context, path string, how int) (*os.File, error) {
	f, err := openLock(path)
	if err != nil {
		return nil, err
	}
	if err := awaitFlock(ctx, f, how); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// awaitFlock waits for the lock until ctx ends.
func awaitFlock(ctx context.Context, f *os.File, how int) error {
	for {
		if ok, err := tryFlock(f, how); ok || err != nil {
			return err
		}
		if err := pause(ctx, lockPoll); err != nil {
			return err
		}
	}
}

// pin moves f's lock to a new file descriptor and returns it. The garbage collector never closes
// that.
func pin(f *os.File) (int, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	f.Close()
	return fd, err
}

// lockDaemon acquires a daemon's lock, or returns ErrRunning if another daemon has it. It is an
// open file description lock, so that Running can query it without acquiring it, even for a moment.
// more is written to the file after the process ID.
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

// Running reports whether a daemon of these directories exists. It may still be starting, or be
// exiting.
func Running(d layout.Dirs) bool {
	held, err := isHeld(daemonLock(d))
	return held && err == nil
}

// isHeld reports whether a daemon holds the lock.
func isHeld(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	l := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &l); err != nil {
		return false, err
	}
	return l.Type != unix.F_UNLCK, nil
}

// dataRemoved reports whether the root directory does not have the files of a daemon that runs: they were removed, or
// are below what was mounted since, such as a disk that is mounted late.
func dataRemoved(d layout.Dirs) bool {
	held, err := isHeld(rootLock(d))
	return err == nil && !held || errors.Is(err, os.ErrNotExist)
}

// PID returns the process ID of the daemon of these directories, 0 if none runs. A daemon that is just
// starting may not have a process ID yet.
func PID(d layout.Dirs) int {
	if !Running(d) {
		return 0
	}
	text, err := os.ReadFile(daemonLock(d))
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, _ := strconv.Atoi(line) // 0 before the daemon has written it
	return pid
}

// pause waits for d, or until ctx ends and returns its cause.
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
