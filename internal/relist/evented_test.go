package relist

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/test"
)

// faulty is a Notifier that fails, after a while, or whose streams break at once.
type faulty struct {
	takes  time.Duration
	breaks bool
	works  atomic.Bool
}

func (f *faulty) Wakeups(ctx context.Context) (<-chan runtime.Wakeup, error) {
	rings := make(chan runtime.Wakeup)
	switch {
	case f.works.Load():
		context.AfterFunc(ctx, func() { close(rings) })
	case f.breaks:
		close(rings)
	default:
		time.Sleep(f.takes)
		return nil, errors.New("refused")
	}
	return rings, nil
}

// TestAStreamThatKeepsFailingIsToldOf: a warning is logged once after 5 failures in a row, however
// the stream fails, and the recovery once the stream has worked for a while.
func TestAStreamThatKeepsFailingIsToldOf(t *testing.T) {
	const fails, again = "container event stream keeps failing", "container event stream works again"
	for name, bell := range map[string]*faulty{
		"refused": {}, "refused late": {takes: 2 * longestReconnect}, "broken at once": {breaks: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &test.Buffer{}
				l := &ledger{heard: heard{kinds: map[Kind]int{}}}
				s := newStream(bell, l, slog.New(slog.NewTextHandler(log, nil)))
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { s.run(ctx); close(done) }()
				go func() {
					for {
						select {
						case <-s.wakeups:
						case <-ctx.Done():
							return
						}
					}
				}()
				for l.take().broken == 0 { // the first
					time.Sleep(time.Millisecond)
				}
				if strings.Count(log.String(), fails) > 0 {
					t.Error("told of after the first failure")
				}
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if n := strings.Count(log.String(), fails); n != 1 || strings.Count(log.String(), again) > 0 {
					t.Errorf("told of %d times, and %d times that it works again", n, strings.Count(log.String(), again))
				}
				bell.works.Store(true)
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if n := strings.Count(log.String(), again); n != 1 || !s.healthy() {
					t.Errorf("told %d times that it works again, which is %v", n, s.healthy())
				}
				cancel()
				<-done
			})
		})
	}
}
