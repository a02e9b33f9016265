package agent

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// DefaultCleanupTimeout is how long cleaning up may delay the end of once by default.
const DefaultCleanupTimeout = 10 * time.Second

const (
	// promptness is in what time something that was told to stop has to return; then it is left alone.
	promptness = 500 * time.Millisecond
	// killTime is how long what is killed at once may take to be gone.
	killTime = time.Second
)

// promptly returns what f does, or soon after ctx has ended ctx's error. Then f goes on alone: what it waits for, as
// a person's input or a file system that hangs, does not hear of ctx.
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

// cleanup bounds what follows a result.
type cleanup struct {
	// begun is when it has begun.
	begun time.Time
	// grace is the longest grace period of what ends, most what cleaning up may take after that.
	grace, most time.Duration
	// runs reports that something that is to end runs still.
	runs func() bool
	// interrupted is closed when somebody does not want to wait, but for the grace periods; nil: that is so already.
	interrupted <-chan struct{}
	// onInterrupt is called when interrupted is closed.
	onInterrupt func()
	// hurry is closed when everything is killed at once.
	hurry <-chan struct{}
}

// endPoll is how often it is looked whether what is to end has ended.
const endPoll = 100 * time.Millisecond

// begin returns a context that ends when cleaning up has had its time.
func (c cleanup) begin() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		c.wait(ctx)
	}()
	return ctx, cancel
}

// wait returns when cleaning up has had its time, or ctx ends.
func (c cleanup) wait(ctx context.Context) {
	tick := time.NewTicker(endPoll)
	defer tick.Stop()
	// From since on nothing runs. At least killTime: what was to be brought to its end before may have taken it all.
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

// graceOf is how long a pod may take to end; 0 if nothing of it runs.
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
