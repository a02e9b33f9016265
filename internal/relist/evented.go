package relist

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"podrun.io/podrun/internal/runtime"
)

// stream keeps a subscription to the runtime's events open and passes the wakeups on.
type stream struct {
	notifier runtime.Notifier
	watch    Observer
	log      *slog.Logger
	wakeups  chan runtime.Wakeup
	changed  chan struct{} // signals that the stream broke, so that the short relist period applies at once
	up       atomic.Bool
}

const (
	firstReconnect   = 100 * time.Millisecond
	longestReconnect = 10 * time.Second
	// sayAfter is how many consecutive subscriptions must fail before a warning is logged.
	sayAfter = 5
)

func newStream(bell runtime.Notifier, watch Observer, log *slog.Logger) *stream {
	return &stream{
		notifier: bell,
		watch:    watch,
		log:      log,
		wakeups:  make(chan runtime.Wakeup, 64),
		changed:  make(chan struct{}, 1),
	}
}

func (s *stream) healthy() bool { return s.up.Load() }

// run subscribes and passes wakeups on, and subscribes again when the stream breaks, until ctx
// ends.
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
			s.log.Warn("container event stream keeps failing; polling meanwhile", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, longestReconnect)
	}
}

// once runs one subscription until it breaks, and returns how long it lasted. If the outage was
// logged (told), it logs the recovery.
func (s *stream) once(ctx context.Context, told bool) (lasted time.Duration, err error) {
	rings, err := s.notifier.Wakeups(ctx)
	if err != nil {
		return 0, err
	}
	if told { // not for a subscription that breaks at once
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
	// Events before the subscription were missed, so everything is listed once.
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
