package reconcile

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
	firstTrouble   = 500 * time.Millisecond
	longestTrouble = 30 * time.Second
)

// trouble counts and logs the consecutive failed syncs of one pod.
type trouble struct {
	key    pod.Key
	report func(key pod.Key, why error) // Options.Troubled
	log    *slog.Logger
	count  int
	logged error // the last error that was logged
}

// failed counts and logs a failed sync and returns after what time to try again. The delay doubles
// with each consecutive failure up to longestTrouble; it is one second while the runtime is
// unavailable.
func (t *trouble) failed(err error) time.Duration {
	t.count++
	if t.report != nil {
		t.report(t.key, err)
	}
	level := slog.LevelWarn
	if errtext.Same(err, t.logged) || errors.Is(err, context.Canceled) {
		level = slog.LevelDebug // already logged
	} else {
		t.logged = err
	}
	t.log.Log(context.Background(), level, "pod sync failed; retrying", "err", err)
	if errors.Is(err, runtime.ErrUnavailable) {
		return time.Second
	}
	return min(firstTrouble<<min(t.count-1, 10), longestTrouble)
}
