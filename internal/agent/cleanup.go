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
	// grace is the longest grace period of what ends, most what cleaning up may take beside it.
	grace, most time.Duration
	// interrupted is closed when somebody does not want to wait, but for the grace periods; nil: that is so already.
	interrupted <-chan struct{}
	// hurry is closed when everything is killed at once.
	hurry <-chan struct{}
}

// begin returns a context that ends when cleaning up has had its time.
func (c cleanup) begin() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	end := c.begun.Add(c.grace + c.most)
	if soon := time.Now().Add(killTime); end.Before(soon) { // what was to be brought to its end before took long
		end = soon
	}
	go func() {
		defer cancel()
		for time.Now().Before(end) {
			select {
			case <-time.After(time.Until(end)):
			case <-ctx.Done():
				return
			case <-c.interrupted:
				c.interrupted = nil
				end = earliest(end, latest(c.begun.Add(c.grace), time.Now()).Add(killTime))
			case <-c.hurry:
				c.interrupted, c.hurry = nil, nil
				end = earliest(end, time.Now().Add(killTime))
			}
		}
	}()
	return ctx, cancel
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
