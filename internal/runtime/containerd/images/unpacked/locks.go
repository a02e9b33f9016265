package unpacked

import (
	"context"
	"sync"
)

// locks serialise, by key, work that this process needs to do only once. The zero value is ready to
// use.
type locks struct {
	mu   sync.Mutex
	held map[string]*lock // those that somebody holds or waits for
}

type lock struct {
	held  chan struct{}
	users int
}

// lock waits until no other goroutine holds the lock of key.
func (l *locks) lock(ctx context.Context, key string) (unlock func(), err error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*lock{}
	}
	of := l.held[key]
	if of == nil {
		of = &lock{held: make(chan struct{}, 1)}
		l.held[key] = of
	}
	of.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if of.users--; of.users == 0 {
			delete(l.held, key)
		}
	}
	select {
	case of.held <- struct{}{}:
		return func() { <-of.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
