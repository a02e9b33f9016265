package network

import (
	"sync"
	"time"
)

// Delays between two releases of a lost sandbox that fail.
const (
	firstRetry = 10 * time.Second
	lastRetry  = 5 * time.Minute
)

// retries count the releases that failed, by sandbox.
type retries struct {
	mu sync.Mutex
	of map[string]retry
}

type retry struct {
	failed int
	next   time.Time
}

// failed counts one more failure of id and returns how many there are.
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

// due reports that id may be tried again.
func (r *retries) due(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !time.Now().Before(r.of[id].next)
}

// succeeded forgets id's failures.
func (r *retries) succeeded(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, id)
}
