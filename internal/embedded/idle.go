package embedded

import (
	"context"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys"
)

// taskPoll is how often a daemon without clients looks for tasks if no event tells it to.
const taskPoll = 10 * time.Second

// reachPoll is how often a daemon without clients looks whether one could come.
const reachPoll = time.Second

// untilIdle returns nil when nothing needs the daemon. The process then holds the users' lock alone until
// it ends: a client that comes now waits for that and finds no daemon. When ctx ends first it returns ctx's
// error. It does not close users: that would pull it from under a goroutine that still waits for the lock.
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

// becomesIdle waits for the last client to go and IdleGrace longer, then reports whether still nothing
// needs the daemon. If so it holds users alone.
func becomesIdle(ctx context.Context, o Options, users *os.File) (bool, error) {
	if err := alone(ctx, users); err != nil {
		return false, err
	}
	if err := flock(users, unix.LOCK_UN); err != nil {
		return false, err
	}
	if isUnreachable(o, users) { // no client will come
		return true, nil
	}
	if err := pause(ctx, o.IdleGrace); err != nil {
		return false, err
	}
	if isUnreachable(o, users) {
		return true, nil
	}
	conn, err := dial(o.Dirs.ContainerdSocket())
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
		o.Log.Warn("looking for tasks before ending", "why", err)
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
		// Without events the time has to pass.
		<-wait.Done()
	}
	return false, context.Cause(ctx)
}

// isUnreachable reports that the users' lock is no longer where clients look for it. The daemon's directory was
// removed, so that none can come any more; one that stayed would keep others from the root directory.
func isUnreachable(o Options, users *os.File) bool {
	return sys.Elsewhere(users, usersLock(o.Dirs))
}

// alone blocks until no client holds the users' lock and takes it. A lock cannot be waited for with a
// context: when ctx ends, the goroutine stays until the process ends, which Serve's caller is about to do.
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
