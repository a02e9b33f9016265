package embedded

import (
	"context"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys"
)

// taskPoll is how often a daemon without clients lists tasks if no event announces a change.
const taskPoll = 10 * time.Second

// reachPoll is how often a daemon without clients checks whether a client can still reach it.
const reachPoll = time.Second

// untilIdle returns nil when nothing needs the daemon. The process then holds the users' lock
// exclusively until it ends: a client that comes meanwhile waits for the lock and then finds no
// daemon. If ctx ends first, untilIdle returns ctx's error. It does not close users, because a
// goroutine may still wait for the lock on it.
func untilIdle(ctx context.Context, o Options, users *os.File) error {
	for {
		idle, err := becomesIdle(ctx, o, users)
		if err != nil {
			return err
		}
		if idle {
			_, err := pin(users)
			return err
		}
	}
}

// becomesIdle waits until no client holds a lease and for IdleGrace longer, or as long as a client
// asked for, then reports whether still nothing needs the daemon. If so, it holds users exclusively.
func becomesIdle(ctx context.Context, o Options, users *os.File) (bool, error) {
	if err := alone(ctx, users); err != nil {
		return false, err
	}
	if err := flock(users, unix.LOCK_UN); err != nil {
		return false, err
	}
	for begun := time.Now(); ; {
		if isUnreachable(o, users) { // no client can come any more
			return true, nil
		}
		rest := max(time.Until(begun.Add(o.IdleGrace)), warmth(o.Dirs))
		if rest <= 0 {
			break
		}
		if err := pause(ctx, min(rest, reachPoll)); err != nil {
			return false, err
		}
	}
	conn, err := dial(o.Dirs.Embedded().Socket())
	if err != nil {
		return false, err
	}
	defer conn.Close()
	ok, err := tryFlock(users, unix.LOCK_EX)
	if err != nil || !ok {
		return false, err
	}
	needed, err := anyTask(ctx, conn)
	if err == nil && !needed {
		return true, nil
	}
	if err != nil {
		o.Log.Warn("listing tasks before an idle exit failed", "err", err)
	}
	if err := flock(users, unix.LOCK_UN); err != nil {
		return false, err
	}
	wait, cancel := context.WithTimeout(ctx, taskPoll)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		for pause(wait, reachPoll) == nil {
			if isUnreachable(o, users) {
				cancel()
			}
		}
	})
	if err := awaitTaskGone(wait, conn); err != nil {
		// There are no events: wait until the next poll.
		<-wait.Done()
	}
	return false, context.Cause(ctx)
}

// isUnreachable reports whether the file of the users' lock is no longer at the path where clients
// open it, or the daemon's data was removed. In the first case no client can come any more, and a
// daemon that went on would block the root directory for others; in the second it can do nothing for
// a client.
func isUnreachable(o Options, users *os.File) bool {
	return sys.Elsewhere(users, usersLock(o.Dirs)) || dataRemoved(o.Dirs)
}

// alone blocks until no client holds the users' lock and acquires it exclusively. Waiting for a
// lock cannot be cancelled: when ctx ends, the goroutine remains until the process ends, which
// Serve's caller is about to do.
func alone(ctx context.Context, users *os.File) error {
	if ok, err := tryFlock(users, unix.LOCK_EX); ok || err != nil {
		return err
	}
	got := make(chan error, 1)
	go func() { got <- flock(users, unix.LOCK_EX) }()
	select {
	case err := <-got:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
