package relist

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"podrun.io/podrun/internal/runtime"
)

// stream keeps one subscription to the runtime's events open. It only passes rings on.
type stream struct {
	notifier runtime.Notifier
	watch    Observer
	log      *slog.Logger
	wakeups  chan runtime.Wakeup
	changed  chan struct{} // rung when the stream broke: the period must fall back now
	up       atomic.Bool
}

const (
	firstReconnect   = 100 * time.Millisecond
	longestReconnect = 10 * time.Second
	// sayAfter is how many subscriptions must fail in a row before a person is told.
	sayAfter = 5
)

func newStream(bell runtime.Notifier, watch Observer, log *slog.Logger) *stream {
	return &stream{notifier: bell, watch: watch, log: log, wakeups: make(chan runtime.Wakeup, 64), changed: make(chan struct{}, 1)}
}

func (s *stream) healthy() bool { return s.up.Load() }

// run subscribes, passes on, and subscribes again, until ctx ends.
func (s *stream) run(ctx context.Context) {
	if s.notifier == nil {
		return
	}
	pause, failures := firstReconnect, 0
	for ctx.Err() == nil {
		lasted, err := s.once(ctx, failures >= sayAfter)
		if ctx.Err() != nil {
			return
		}
		s.watch.Stream(false, err)
		if lasted > longestReconnect {
			pause, failures = firstReconnect, 0
		}
		if failures++; failures == sayAfter {
			s.log.Warn("container event stream keeps failing; polling meanwhile", "why", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, longestReconnect)
	}
}

// once holds one subscription until it breaks, and returns how long it had it. A person who was told that there
// was none is told when there is.
func (s *stream) once(ctx context.Context, told bool) (lasted time.Duration, err error) {
	rings, err := s.notifier.Wakeups(ctx)
	if err != nil {
		return 0, err
	}
	if told { // not of one that breaks at once
		defer time.AfterFunc(longestReconnect, func() { s.log.Info("container event stream works again") }).Stop()
	}
	begun := time.Now()
	s.up.Store(true)
	s.watch.Stream(true, nil)
	defer func() {
		lasted = time.Since(begun)
		s.up.Store(false)
		select {
		case s.changed <- struct{}{}:
		default:
		}
	}()
	// Events before the subscription were missed: look at everything once.
	next := runtime.Wakeup{All: true}
	for ok := true; ok; {
		select {
		case s.wakeups <- next:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		select {
		case next, ok = <-rings:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return 0, runtime.ErrUnavailable
}
