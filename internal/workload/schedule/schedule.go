// Package schedule interprets the schedules of CronJobs. Its parser is Kubernetes', robfig/cron, so the verdicts are
// too. It is pure but for the data base of time zones, which is part of the binary for machines that have none.
//
// It does not know the clock, and decides about no run.
//
// Begin reading at New.
package schedule

import (
	"fmt"
	"time"
	_ "time/tzdata" // for machines without a data base of time zones

	"github.com/robfig/cron/v3"
)

// Schedule is a set of times.
type Schedule struct {
	times    cron.Schedule
	location *time.Location
}

// Parse parses the text of a schedule. Its error is the one of Kubernetes' validation.
func Parse(text string) (times cron.Schedule, err error) {
	defer func() { // robfig/cron panics at TZ= without a space
		if failed := recover(); failed != nil {
			times, err = nil, fmt.Errorf("invalid schedule format: %v", failed)
		}
	}()
	return cron.ParseStandard(text)
}

// New returns the schedule of a text in a time zone, nil being the one of the machine.
func New(text string, zone *string) (Schedule, error) {
	times, err := Parse(text)
	if err != nil {
		return Schedule{}, err
	}
	s := Schedule{times: times, location: time.Local}
	if zone != nil {
		s.location, err = time.LoadLocation(*zone)
	}
	return s, err
}

// every returns the interval of a schedule @every, whose times count from the last one; 0 for other schedules.
func (s Schedule) every() time.Duration {
	if fixed, is := s.times.(cron.ConstantDelaySchedule); is {
		return fixed.Delay
	}
	return 0
}

// Next returns the first time after now; the zero time if there is none within five years. The times of @every count
// from since, which is not after now.
func (s Schedule) Next(since, now time.Time) time.Time {
	if every := s.every(); every > 0 {
		since = since.Truncate(time.Second)
		return since.Add(now.Sub(since).Truncate(every) + every)
	}
	return s.times.Next(now.In(s.location))
}

// Latest returns the last time that is after since and not after now; the zero time if there is none. However much time
// has passed, it takes few steps.
func (s Schedule) Latest(since, now time.Time) time.Time {
	if every := s.every(); every > 0 {
		since = since.Truncate(time.Second)
		if passed := now.Sub(since).Truncate(every); passed > 0 {
			return since.Add(passed)
		}
		return time.Time{}
	}
	next := func(after time.Time) (time.Time, bool) {
		t := s.times.Next(after.In(s.location))
		return t, !t.IsZero() && !t.After(now)
	}
	latest, found := next(since)
	if !found {
		return time.Time{}
	}
	// There is a time after since, and none after end.
	for end := now; end.Sub(latest) > time.Second; {
		middle := latest.Add(end.Sub(latest) / 2)
		if t, more := next(middle); more {
			latest = t
		} else {
			end = middle
		}
	}
	return latest
}

// Exceeds reports that there are more than n times after since and not after now.
func (s Schedule) Exceeds(n int, since, now time.Time) bool {
	for range n + 1 {
		if since = s.Next(since, since); since.IsZero() || since.After(now) {
			return false
		}
	}
	return true
}
