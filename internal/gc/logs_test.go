package gc

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// shelf notes down when it was asked to remove logs, and how old.
type shelf struct {
	mu    sync.Mutex
	begin time.Time
	asked [][2]time.Duration // since begin, age
	err   error
}

func (s *shelf) Remove(_ context.Context, age time.Duration) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, [2]time.Duration{time.Since(s.begin), age})
	return []string{"ns_web_u1"}, s.err
}

func (s *shelf) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// take returns what was noted down since.
func (s *shelf) take() [][2]time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.asked
	s.asked = nil
	return out
}

func TestOldLogs(t *testing.T) {
	t.Parallel()
	const day, minute, second = 24 * time.Hour, time.Minute, time.Second
	for name, c := range map[string]struct {
		age  time.Duration
		want [][2]time.Duration // in 11 minutes
	}{
		"what was lost":    {0, [][2]time.Duration{{0, day}, {5 * minute, day}, {10 * minute, day}}},
		"kept for hours":   {9 * time.Hour, [][2]time.Duration{{0, 9 * time.Hour}, {5 * minute, 9 * time.Hour}, {10 * minute, 9 * time.Hour}}},
		"kept for minutes": {4 * minute, [][2]time.Duration{{0, 4 * minute}, {4 * minute, 4 * minute}, {8 * minute, 4 * minute}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				logs := &shelf{begin: time.Now()}
				s := newStore()
				k := keeper(t, s, Policy{High: 85, Low: 80, LeastFree: 10, LogAge: c.age})
				k.o.Logs, k.o.Disks[0].Logs = logs, true
				defer run(t, k, s)()
				after(11 * minute)
				if got := logs.take(); !slices.Equal(got, c.want) {
					t.Errorf("asked %v, want %v", got, c.want)
				}
				// With too little space all go, and it is tried again though it failed.
				logs.fail(errors.New("busy"))
				s.fill(95)
				after(2*minute + 5*second)
				if got := logs.take(); len(got) != 2 || got[0][1] != 0 || got[1][1] != 0 || got[1][0]-got[0][0] != pressedPeriod {
					t.Errorf("without space asked %v", got)
				}
			})
		})
	}
}
