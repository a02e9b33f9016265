package unpacked

import (
	"context"
	"sync"
)

// locks serialise, by key, work that this process needs to do only once. The zero value is ready to
// use.
type locks struct{ held sync.Map } // of string and chan struct{}

// lock waits until no other goroutine holds the lock of key.
func (l *locks) lock(ctx context.Context, key string) (unlock func(), err error) {
	held, _ := l.held.LoadOrStore(key, make(chan struct{}, 1))
	lock := held.(chan struct{})
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
