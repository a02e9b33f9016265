package record

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/sys/errtext"
)

const (
	// FirstRetry is after what time a failed sync is tried again for the first time.
	FirstRetry   = 500 * time.Millisecond
	longestRetry = 30 * time.Second
)

// Syncs counts and logs the consecutive failed syncs of one pod.
type Syncs struct {
	key    pod.Key
	report func(key pod.Key, why error) // Options.Troubled
	log    *slog.Logger
	count  int
	logged error // the last error that was logged
}

// NewSyncs returns a count of the failed syncs of the pod key. report may be nil; it is called with the
// error of each.
func NewSyncs(key pod.Key, report func(key pod.Key, why error), log *slog.Logger) *Syncs {
	return &Syncs{key: key, report: report, log: log}
}

// Count returns the number of consecutive failed syncs.
func (s *Syncs) Count() int { return s.count }

// Succeeded records a sync that did not fail.
func (s *Syncs) Succeeded() { s.count, s.logged = 0, nil }

// Failed counts and logs a failed sync and returns after what time to try again. The delay doubles
// with each consecutive failure up to longestRetry; it is one second while the runtime is
// unavailable.
func (s *Syncs) Failed(err error) time.Duration {
	s.count++
	if s.report != nil {
		s.report(s.key, err)
	}
	level := slog.LevelWarn
	if errtext.Same(err, s.logged) || errors.Is(err, context.Canceled) {
		level = slog.LevelDebug // already logged
	} else {
		s.logged = err
	}
	s.log.Log(context.Background(), level, "pod sync failed; retrying", "err", err)
	if errors.Is(err, runtime.ErrUnavailable) {
		return time.Second
	}
	return min(FirstRetry<<min(s.count-1, 10), longestRetry)
}
