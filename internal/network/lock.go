package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"podrun.io/podrun/internal/sys"
)

// lockLimit bounds the wait for a lock where the caller's context does not.
const lockLimit = 30 * time.Second

// waitForLock calls acquire, which may block, and waits for it until ctx ends, at most for lockLimit. What acquire
// returns after that is given to unlock.
func waitForLock(ctx context.Context, path string, acquire func() (*sys.Lock, error), unlock func(*sys.Lock)) (*sys.Lock, error) {
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

// lockDir locks a directory and makes it if it is missing. When it comes too late for the caller, unlock is called.
func lockDir(ctx context.Context, path string, mode os.FileMode, unlock func(*sys.Lock)) (*sys.Lock, error) {
	lock, err := sys.TryLockDir(path, mode)
	if !errors.Is(err, sys.ErrLocked) {
		return lock, err
	}
	return waitForLock(ctx, path, func() (*sys.Lock, error) { return sys.LockDir(path, mode) }, unlock)
}

// lockExisting locks a directory; a missing one is os.ErrNotExist.
func lockExisting(ctx context.Context, path string) (*sys.Lock, error) {
	if _, err := os.Lstat(path); err != nil {
		return nil, err
	}
	return waitForLock(ctx, path, func() (*sys.Lock, error) { return sys.LockExisting(path) }, (*sys.Lock).Unlock)
}
