// Package deadline limits how long podrun works after it should have ended: Promptly abandons what
// hangs when its context ends, and Cleanup limits the clean-up after a result is known.
//
// The package only ends waits and contexts. What is cleaned up, its grace period and whether a pod
// still runs is given by the caller.
//
// Begin reading at Cleanup.
package deadline

import (
	"context"
	"fmt"
	"time"
)

const (
	// promptness is how long a function may take to return after its context has ended. After that
	// it is abandoned.
	promptness = 500 * time.Millisecond
	// killTime is how long killed pods may take to disappear.
	killTime = time.Second
)

// Promptly returns the result of f, or ctx's error soon after ctx has ended. In the second case f
// continues in the background: what it waits for, such as a person's input or a file system that
// hangs, cannot be cancelled.
func Promptly[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type outcome struct {
		result T
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		result, err := f()
		done <- outcome{result, err}
	}()
	select {
	case o := <-done:
		return o.result, o.err
	case <-ctx.Done():
	}
	select {
	case o := <-done:
		return o.result, o.err
	case <-time.After(promptness):
		var none T
		return none, ctx.Err()
	}
}

// Cleanup limits the time of the clean-up after a result.
type Cleanup struct {
	// Begun is when the cleanup began.
	Begun time.Time
	// Grace is the longest grace period of the terminating pods. Most is how long the cleanup may
	// take after that.
	Grace, Most time.Duration
	// Runs reports that a terminating pod still runs.
	Runs func() bool
	// Interrupted is closed when the user interrupts the clean-up: from then on it lasts only for
	// the grace periods of the pods that still run, and Most does not count any more. nil: an
	// interrupt changes nothing.
	Interrupted <-chan struct{}
	// OnInterrupt is called when Interrupted is closed.
	OnInterrupt func()
	// Hurry is closed when everything is to be killed at once.
	Hurry <-chan struct{}
}

// endPoll is how often the terminating pods are checked.
const endPoll = 100 * time.Millisecond

// Begin returns a context that ends when the time of the cleanup is over.
func (c Cleanup) Begin() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		c.wait(ctx)
	}()
	return ctx, cancel
}

// wait returns when the time of the cleanup is over, or ctx ends.
func (c Cleanup) wait(ctx context.Context) {
	tick := time.NewTicker(endPoll)
	defer tick.Stop()
	// Nothing runs any more from since on. Allow at least killTime: what had to be finished before
	// may have used up most.
	since, most := c.Begun, max(c.Most, killTime)
	for {
		if c.Runs() {
			since = latest(since, earliest(time.Now(), c.Begun.Add(c.Grace)))
		}
		if time.Since(since) >= most {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		case <-c.Interrupted:
			c.OnInterrupt()
			c.Interrupted, since, most = nil, time.Now(), promptness
		case <-c.Hurry:
			c.Interrupted, c.Hurry, c.Grace, since, most = nil, nil, 0, time.Now(), killTime
		}
	}
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// TimeoutError says that the timeout was reached before any pod was run.
type TimeoutError struct {
	// Doing is the step that took too long.
	Doing string
	After time.Duration
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("not done within %s: %s; nothing was started", e.After, e.Doing)
}
