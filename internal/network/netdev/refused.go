package netdev

import (
	"slices"
	"sync"
	"time"
)

// Refused is what is missing because the kernel has refused it. For a while it is not tried again. Its methods may be
// called concurrently.
type Refused struct {
	mu    sync.Mutex
	names []string
	until time.Time
}

// Set records what is missing although it has just been tried, for a time.
func (r *Refused) Set(names []string, lasts time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names, r.until = slices.Clone(names), time.Now().Add(lasts)
}

// Has reports whether all of the names are refused; true for none.
func (r *Refused) Has(names []string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(r.names, name) })
}

// Without returns those of all names that may be tried now. It forgets what is not missing any more.
func (r *Refused) Without(all []string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names = slices.DeleteFunc(r.names, func(name string) bool { return !slices.Contains(all, name) })
	if time.Now().After(r.until) {
		r.names = nil
	}
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(r.names, name) })
}
