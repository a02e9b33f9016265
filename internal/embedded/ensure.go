package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys"
)

// startTimeout bounds Ensure. A daemon with many shims to adopt needs some tenths of a second.
const startTimeout = 30 * time.Second

// Lease keeps the daemon that Ensure returned it for running, until the Lease is closed or its
// process ends. It must be used by one goroutine only.
type Lease struct {
	dirs        layout.Dirs
	address     string
	snapshotter string
	users       int
}

// Address returns the path of the daemon's gRPC socket.
func (l *Lease) Address() string { return l.address }

// Snapshotter returns the name of the snapshotter to use with the daemon.
func (l *Lease) Snapshotter() string { return l.snapshotter }

// Close releases the lease. The daemon exits when nothing else needs it. Close may be called again.
func (l *Lease) Close() error {
	if l.users < 0 {
		return nil
	}
	fd := l.users
	l.users = -1
	return unix.Close(fd)
}

// KeepWarm makes the daemon run for a minute from now on, also if nothing needs it, so that the next client does not
// wait for its start.
func (l *Lease) KeepWarm() error { return sys.ReplaceFile(warmMark(l.dirs), nil, 0o600) }

// Cool takes KeepWarm back, also that of earlier clients.
func (l *Lease) Cool() error {
	if err := os.Remove(warmMark(l.dirs)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// warmth returns for how long the daemon shall still run after KeepWarm.
func warmth(d layout.Dirs) time.Duration {
	mark, err := os.Lstat(warmMark(d))
	if err != nil {
		return 0
	}
	if since := time.Since(mark.ModTime()); since >= 0 { // else the clock was set back
		return warmTime - since
	}
	return 0
}

// Ensure returns a lease of the embedded containerd of o.Dirs, which answers requests when Ensure
// returns. If none runs, it starts one, detached from this process. The errors ErrNoRunc and
// ErrNotRoot mean that nothing was started.
func Ensure(ctx context.Context, o Options) (*Lease, error) {
	o, err := o.checked()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := withoutData(ctx, o.Dirs); err != nil {
		return nil, err
	}
	// From here on, a running daemon does not exit. If one is just exiting, this waits until it
	// has.
	users, err := acquire(ctx, usersLock(o.Dirs), unix.LOCK_SH)
	if err != nil {
		return nil, fmt.Errorf("waiting for the embedded containerd to end: %w", err)
	}
	defer users.Close()
	if o.Serves {
		if err := upgrade(ctx, o, users); err != nil {
			return nil, err
		}
	}
	if err := answering(ctx, o); err != nil {
		return nil, err
	}
	snapshotter, err := Snapshotter(o.Dirs)
	if err != nil {
		return nil, err
	}
	fd, err := pin(users)
	if err != nil {
		return nil, err
	}
	return &Lease{dirs: o.Dirs, address: o.Dirs.Embedded().Socket(), snapshotter: snapshotter, users: fd}, nil
}

// ErrWithoutData says that a daemon runs whose files are not in the root directory.
var ErrWithoutData = errors.New("they are in another root directory, were removed, or something was mounted over them")

// endTime is how long Ensure waits for the end of a daemon whose data was removed. If nobody uses it, it ends
// within reachPoll.
const endTime = 5 * reachPoll

// withoutData waits until no daemon runs whose data was removed: it would answer, but fail in everything.
func withoutData(ctx context.Context, d layout.Dirs) error {
	for deadline := time.Now().Add(endTime); dataRemoved(d) && PID(d) != 0; {
		if time.Now().After(deadline) {
			return fmt.Errorf("podrun's containerd, process %d, has no files in %s: %w; if it was started with another root "+
				"directory, give that with --root-dir; else end the programs that use it, then that process",
				PID(d), d.Root, ErrWithoutData)
		}
		if err := pause(ctx, lockPoll); err != nil {
			return err
		}
	}
	return nil
}

// answering returns when the daemon answers. It starts the daemon if none runs.
func answering(ctx context.Context, o Options) error {
	if Running(o.Dirs) && answers(ctx, o.Dirs.Embedded().Socket()) == nil {
		return nil
	}
	start, err := acquire(ctx, startLock(o.Dirs), unix.LOCK_EX)
	if err != nil {
		return fmt.Errorf("waiting for another podrun to start the embedded containerd: %w", err)
	}
	defer start.Close()
	for {
		if !Running(o.Dirs) {
			// Another process may start one by hand at the same time; its daemon is as good.
			if err := spawn(ctx, o); err != nil && !Running(o.Dirs) {
				return err
			}
		}
		last := answers(ctx, o.Dirs.Embedded().Socket())
		if last == nil {
			return nil
		}
		// A daemon that does not answer is still starting, or is exiting for a reason other than
		// idleness.
		if err := pause(ctx, lockPoll); err != nil {
			return fmt.Errorf("the embedded containerd does not answer: %w", errors.Join(err, last))
		}
	}
}
