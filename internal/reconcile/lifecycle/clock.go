package lifecycle

import (
	"time"

	"podrun.io/podrun/internal/pod"
)

// clock converts recorded wall times to monotonic times of this process. The wall clock may be set
// at any moment: so clock computes the age of each recorded time once, when it first sees it, and
// after that counts by the monotonic clock. A time in the future counts as now.
type clock struct {
	wall func() time.Time
	seen map[wallTime]time.Time
}

// wallTime identifies a recorded time: whose it is, and its value.
type wallTime struct {
	of string
	at int64 // wall clock, Unix nanoseconds
}

func newClock(wall func() time.Time) clock {
	return clock{wall: wall, seen: map[wallTime]time.Time{}}
}

// monotonic converts at, a wall time recorded of the instance or revision with the ID of, to a
// monotonic time of this process. The zero time stays zero.
func (c clock) monotonic(of string, at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	key := wallTime{of, at.UnixNano()}
	placed, known := c.seen[key]
	if !known {
		age := max(c.wall().Round(0).Sub(at.Round(0)), 0)
		placed = time.Now().Add(-age)
		c.seen[key] = placed
	}
	return placed
}

// recorded converts at, a monotonic time of this process, to a wall time by the current wall clock.
// The zero time stays zero.
func (c clock) recorded(at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return c.wall().UTC().Add(-time.Since(at)).Round(0)
}

// forget removes the times of instances and revisions that no longer exist.
func (c clock) forget(seen pod.Observed) {
	if len(c.seen) <= 4*(len(seen.Containers)+len(seen.Remembered))+len(seen.Data) {
		return
	}
	there := map[string]bool{}
	for _, all := range [][]pod.Container{seen.Containers, seen.Remembered} {
		for _, one := range all {
			there[one.ID] = true
		}
	}
	for _, uid := range seen.Data {
		there[string(uid)] = true
	}
	for key := range c.seen {
		if !there[key.of] {
			delete(c.seen, key)
		}
	}
}
