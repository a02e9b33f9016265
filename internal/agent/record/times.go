package record

import (
	"time"

	"podrun.io/podrun/internal/sys/clock"
	"podrun.io/podrun/internal/workload/cronjobs"
	"podrun.io/podrun/internal/workload/jobs"
)

// times is the wall clock, and what is known of it.
type times struct {
	wall  func() time.Time
	trust func() cronjobs.Trust
	// steps returns by how much the clock was set since it was called last, and when the machine was booted by what it
	// showed before.
	steps func() (by time.Duration, boot time.Time)
}

// newTimes returns the machine's clock.
func newTimes() times {
	watch := clock.New()
	trust := func() cronjobs.Trust { return cronjobs.Trust{Synchronized: clock.Synchronized(), Set: watch.Set()} }
	return times{wall: time.Now, trust: trust, steps: clock.NewSteps().Next}
}

// rightTimes returns a clock that is always right.
func rightTimes(wall func() time.Time) times {
	trust := func() cronjobs.Trust { return cronjobs.Trust{Synchronized: true} }
	return times{wall: wall, trust: trust, steps: func() (time.Duration, time.Time) { return 0, time.Time{} }}
}

// step returns how the clock was set since it was called last, and whether it was. The times of the runs of Jobs are
// moved by as much: a deadline does not pass because a clock becomes right.
func (t times) step() (jobs.Step, bool) {
	by, boot := t.steps()
	return jobs.Step{By: by, From: boot, To: t.wall().Add(-by)}, by != 0
}
