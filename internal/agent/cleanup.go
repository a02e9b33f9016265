package agent

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// DefaultCleanupTimeout is by default how long cleaning up may delay the end of once.
const DefaultCleanupTimeout = 10 * time.Second

const (
	// promptness is how long a function may take to return after its context has ended. After that
	// it is abandoned.
	promptness = 500 * time.Millisecond
	// killTime is how long killed pods may take to disappear.
	killTime = time.Second
)

// promptly returns the result of f, or ctx's error soon after ctx has ended. In the second case f
// continues in the background: what it waits for, such as a person's input or a file system that
// hangs, cannot be cancelled.
func promptly[T any](ctx context.Context, f func() (T, error)) (T, error) {
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

// cleanup limits the time of the cleanup after a result.
type cleanup struct {
	// begun is when the cleanup began.
	begun time.Time
	// grace is the longest grace period of the terminating pods. most is how long the cleanup may
	// take after that.
	grace, most time.Duration
	// runs reports that a terminating pod still runs.
	runs func() bool
	// interrupted is closed when the user does not want to wait any longer than the grace periods.
	// nil: that is the case already.
	interrupted <-chan struct{}
	// onInterrupt is called when interrupted is closed.
	onInterrupt func()
	// hurry is closed when everything is to be killed at once.
	hurry <-chan struct{}
}

// endPoll is how often the terminating pods are checked.
const endPoll = 100 * time.Millisecond

// begin returns a context that ends when the time of the cleanup is over.
func (c cleanup) begin() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		c.wait(ctx)
	}()
	return ctx, cancel
}

// wait returns when the time of the cleanup is over, or ctx ends.
func (c cleanup) wait(ctx context.Context) {
	tick := time.NewTicker(endPoll)
	defer tick.Stop()
	// Nothing runs any more from since on. Allow at least killTime: what had to be finished before
	// may have used up most.
	since, most := c.begun, max(c.most, killTime)
	for {
		if c.runs() {
			since = latest(since, earliest(time.Now(), c.begun.Add(c.grace)))
		}
		if time.Since(since) >= most {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		case <-c.interrupted:
			c.onInterrupt()
			c.interrupted, since, most = nil, time.Now(), promptness
		case <-c.hurry:
			c.interrupted, c.hurry, c.grace, since, most = nil, nil, 0, time.Now(), killTime
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

// graceOf returns how long a pod may take to terminate; 0 if it has reached a final phase and none of
// its containers runs.
func graceOf(p *v1.Pod) time.Duration {
	over := p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
	all := slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
	if over && !slices.ContainsFunc(all, func(s v1.ContainerStatus) bool { return s.State.Running != nil }) {
		return 0
	}
	seconds := int64(v1.DefaultTerminationGracePeriodSeconds)
	if given := p.Spec.TerminationGracePeriodSeconds; given != nil {
		seconds = *given
	}
	return time.Duration(seconds) * time.Second
}
