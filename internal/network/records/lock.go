package records

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"podrun.io/podrun/internal/sys"
)

// lockLimit bounds the wait for a lock if the caller's context does not end sooner.
const lockLimit = 30 * time.Second

// waitForLock calls acquire, which may block, and waits for it until ctx ends, at most for
// lockLimit. If acquire succeeds after that, its lock is passed to unlock.
func waitForLock(
	ctx context.Context, path string, acquire func() (*sys.Lock, error), unlock func(*sys.Lock),
) (*sys.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, lockLimit)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	type result struct {
		lock *sys.Lock
		err  error
	}
	c := make(chan result, 1)
	go func() {
		lock, err := acquire()
		c <- result{lock, err}
	}()
	select {
	case r := <-c:
		return r.lock, r.err
	case <-ctx.Done():
		go func() {
			if r := <-c; r.err == nil {
				unlock(r.lock)
			}
		}()
		return nil, fmt.Errorf("waiting for the lock of %s: %w", path, ctx.Err())
	}
}

// LockDir locks a directory and creates it if it is missing. If the lock is acquired only after the
// caller has given up, unlock is called with it.
func LockDir(ctx context.Context, path string, mode os.FileMode, unlock func(*sys.Lock)) (*sys.Lock, error) {
	lock, err := sys.TryLockDir(path, mode)
	if !errors.Is(err, sys.ErrLocked) {
		return lock, err
	}
	return waitForLock(ctx, path, func() (*sys.Lock, error) { return sys.LockDir(path, mode) }, unlock)
}

// lockExisting locks a directory. A missing directory is os.ErrNotExist.
func lockExisting(ctx context.Context, path string) (*sys.Lock, error) {
	if _, err := os.Lstat(path); err != nil {
		return nil, err
	}
	return waitForLock(ctx, path, func() (*sys.Lock, error) { return sys.LockExisting(path) }, (*sys.Lock).Unlock)
}
