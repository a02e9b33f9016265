package reconcile

import (
	"time"

	"podrun.io/podrun/internal/pod"
)

// clock tells how long ago something was that was noted down by the wall's clock. That clock may be set at any time; so each
// time is asked for its age once, when it is seen first, and from then on it counts as this process has measured it.
// What seems not to have been yet has just been.
type clock struct {
	wall func() time.Time
	seen map[wallTime]time.Time
}

// wallTime is a time that was noted down of something.
type wallTime struct {
	of string
	at int64 // by the wall's clock
}

func newClock(wall func() time.Time) clock {
	if wall == nil {
		wall = time.Now
	}
	return clock{wall: wall, seen: map[wallTime]time.Time{}}
}

// monotonic returns at as this process measures time. Of the zero time it is that.
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

// recorded returns at, as this process measures time, by the wall's clock as it is now. Of the zero time it is that.
func (c clock) recorded(at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return c.wall().UTC().Add(-time.Since(at)).Round(0)
}

// steady is seen with the times of instances placed.
func (w *worker) steady(seen pod.Observed) pod.Observed {
	w.clock.forget(seen)
	for _, all := range []*[]pod.Container{&seen.Containers, &seen.Remembered} {
		placed := make([]pod.Container, len(*all))
		for i, c := range *all {
			c.StartedAt, c.FinishedAt = w.clock.monotonic(c.ID, c.StartedAt), w.clock.monotonic(c.ID, c.FinishedAt)
			placed[i] = c
		}
		*all = placed
	}
	return seen
}

// forget drops what was seen of instances that are not there any more.
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
