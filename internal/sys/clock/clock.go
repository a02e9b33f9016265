// Package clock says what is known of the machine's clock: whether it can be right, not what it shows.
//
// Begin reading at Watch.
package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Watch notices that the clock is set.
type Watch struct{ since time.Duration }

// New returns a Watch that notices what happens from now on.
func New() Watch { return Watch{since: booted()} }

// noticed is how far a clock is set at least. Less is the difference of two readings of it.
const noticed = time.Second

// Set reports that the clock shows another time now than it would if nobody had set it since New.
func (w Watch) Set() bool { return (booted() - w.since).Abs() >= noticed }

// Steps notices each time that the clock is set. It is not safe for concurrent use.
type Steps struct{ last time.Duration }

// NewSteps returns Steps that notice what happens from now on.
func NewSteps() *Steps { return &Steps{last: booted()} }

// step is how far a clock is set at least to be noticed by Next.
const step = time.Minute

// Next returns by how much the clock was set since Next was called last, and when the machine was booted by what it
// showed before. Less than a minute is 0.
func (s *Steps) Next() (by time.Duration, boot time.Time) {
	now := booted()
	by, boot = now-s.last, time.Unix(0, int64(s.last))
	s.last = now
	if by.Abs() < step {
		return 0, boot
	}
	return by, boot
}

// booted returns when the machine was booted by its clock, since the epoch. It changes when the clock is set, and not
// while the machine sleeps.
func booted() time.Duration {
	var wall, up unix.Timespec
	if unix.ClockGettime(unix.CLOCK_REALTIME, &wall) != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
		return 0
	}
	return time.Duration(wall.Nano() - up.Nano())
}

// Synchronized reports that the kernel is told by a source of time that its clock is right (STA_UNSYNC of adjtimex(2)
// is not set).
func Synchronized() bool {
	var t unix.Timex
	_, err := unix.Adjtimex(&t)
	return err == nil && t.Status&unix.STA_UNSYNC == 0
}
