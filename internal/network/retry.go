package network

import (
	"sync"
	"time"
)

// Delays between failed attempts to release a lost sandbox: they start with firstRetry and double
// up to lastRetry.
const (
	firstRetry = 10 * time.Second
	lastRetry  = 5 * time.Minute
)

// retries counts the failed releases by sandbox ID. Its methods may be called concurrently.
type retries struct {
	mu sync.Mutex
	of map[string]retry
}

type retry struct {
	failed int
	next   time.Time
}

// failed counts a failure of id and returns how many there are.
func (r *retries) failed(id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[string]retry{}
	}
	n := r.of[id].failed + 1
	r.of[id] = retry{failed: n, next: time.Now().Add(min(firstRetry<<min(n-1, 10), lastRetry))}
	return n
}

// due reports whether id may be tried again now.
func (r *retries) due(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !time.Now().Before(r.of[id].next)
}

// succeeded resets id's failures.
func (r *retries) succeeded(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, id)
}
