// Package pace limits how often something is done that others cause: so many times at once, and then once in a while.
// It does not say what is done instead.
//
// Begin reading at Pace.Wait.
package pace

import (
	"context"
	"sync"
	"time"
)

// Pace lets its callers go on so many times at once, and then one after another. Its methods may be called
// concurrently.
type Pace struct {
	// AtOnce is how many may go on at once after nobody has for a while, and Every how long one more takes then.
	AtOnce int
	Every  time.Duration

	mu sync.Mutex
	// free is when all of AtOnce may go on again.
	free time.Time
}

// Next returns after what time its caller, who is counted, may go on; 0 or less if that is now.
func (p *Pace) Next() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.free.Before(now) {
		p.free = now
	}
	p.free = p.free.Add(p.Every)
	return p.free.Sub(now) - time.Duration(p.AtOnce)*p.Every
}

// Wait waits until its caller may go on, or ctx ends, which is its error.
func (p *Pace) Wait(ctx context.Context) error {
	wait := p.Next()
	if wait <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
