package lifecycle

import (
	"slices"
	"time"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// Instances is what the worker has done to its pod's instances, by instance ID.
type Instances struct {
	clock     clock
	signalled map[string]pod.Signals
	late      map[string]bool        // the last signal timed out
	restarted map[string]*pod.Failed // the instance is replaced for a resize or on request
	// unanswered are the last stop signals without an answer, by when they were sent.
	unanswered map[string]time.Time
}

func newInstances(wall func() time.Time) *Instances {
	return &Instances{
		clock:     newClock(wall),
		signalled: map[string]pod.Signals{},
		late:      map[string]bool{},
		restarted: map[string]*pod.Failed{},

		unanswered: map[string]time.Time{},
	}
}

// Signalled returns what was sent to each instance, by instance ID, as monotonic times. The caller does
// not change it.
func (i *Instances) Signalled() map[string]pod.Signals { return i.signalled }

// RestartForResize records that the instance is replaced by one that has other resources.
func (i *Instances) RestartForResize(id, container string) {
	i.restarted[id] = plan.ResizeRestart(container)
}

// RestartOnRequest records that the restart of the instance was requested.
func (i *Instances) RestartOnRequest(id string) { i.restarted[id] = plan.RequestedRestart() }

// Since converts the time at, at which the revision with the UID began by the wall clock, to a
// monotonic time of this process. The zero time stays zero.
func (i *Instances) Since(uid pod.UID, at time.Time) time.Time {
	return i.clock.monotonic(string(uid), at)
}

// Reaped forgets the signals that were sent to an instance whose exit is being recorded.
func (i *Instances) Reaped(id string) { delete(i.signalled, id) }

// Remove removes an instance that is being removed from the machine.
func (i *Instances) Remove(id string) {
	delete(i.signalled, id)
	delete(i.late, id)
	delete(i.restarted, id)
	delete(i.unanswered, id)
}

// terminating reports that the termination of an instance has begun.
func (i *Instances) terminating(id string) bool { return i.signalled[id] != pod.Signals{} }

// Ending reports that the termination of any instance has begun.
func (i *Instances) Ending(seen pod.Observed) bool {
	return slices.ContainsFunc(seen.Containers, func(c pod.Container) bool { return i.terminating(c.ID) })
}

// signals returns what was sent to an instance, by this process or as the checkpoint says.
func (i *Instances) signals(c pod.Container) pod.Signals {
	if s, known := i.signalled[c.ID]; known {
		return s
	}
	s := c.Notes.Signals
	for _, at := range []*time.Time{&s.Asked, &s.Hooked, &s.Signalled, &s.Killed} {
		*at = i.clock.monotonic(c.ID, *at)
	}
	return s
}

// recorded returns what was sent to an instance, in wall times.
func (i *Instances) recorded(id string) pod.Signals {
	s := i.signalled[id]
	for _, at := range []*time.Time{&s.Asked, &s.Hooked, &s.Signalled, &s.Killed} {
		*at = i.clock.recorded(*at)
	}
	return s
}

// Resume continues the terminations that an earlier podrun process began.
func (i *Instances) Resume(seen pod.Observed) {
	for _, c := range seen.Containers {
		if s := i.signals(c); !c.Reaped && s != (pod.Signals{}) {
			i.signalled[c.ID] = s
		}
	}
}

// endedByItself reports that an instance exited before its termination began.
func (i *Instances) endedByItself(c pod.Container) bool {
	if c.State != pod.Exited {
		return false
	}
	ended, s := i.clock.monotonic(c.ID, c.FinishedAt), i.signals(c)
	for _, at := range []time.Time{s.Asked, s.Killed, i.clock.monotonic(c.ID, askedToExit(c))} {
		if !at.IsZero() && !ended.Before(at) {
			return false
		}
	}
	return true
}

// DeferLate removes the signals to instances whose last signal timed out, unless there are no other
// actions. So the pod's other containers are served first.
func (i *Instances) DeferLate(actions []plan.Action) []plan.Action {
	others := slices.DeleteFunc(slices.Clone(actions), func(a plan.Action) bool {
		switch a := a.(type) {
		case plan.Terminate:
			return i.late[a.ID]
		case plan.Kill:
			return i.late[a.ID]
		}
		return false
	})
	if len(others) == 0 {
		return actions
	}
	return others
}

// askedToExit returns when an instance was asked to exit, as is recorded; zero if it was not. A signal without an
// answer counts if the instance has exited within its grace period after it.
func askedToExit(c pod.Container) time.Time {
	if n := c.Notes; n.Asked.IsZero() && c.State == pod.Exited && c.FinishedAt.Sub(n.Unanswered) <= c.Grace {
		return n.Unanswered
	}
	return c.Notes.Asked
}

// Monotonic returns seen with the start and end of each instance, and when it was asked to exit, which are recorded by
// the wall clock, converted to monotonic times of this process.
func (i *Instances) Monotonic(seen pod.Observed) pod.Observed {
	i.clock.forget(seen)
	for _, all := range []*[]pod.Container{&seen.Containers, &seen.Remembered} {
		placed := make([]pod.Container, len(*all))
		for n, c := range *all {
			c.Notes.Asked = askedToExit(c)
			for _, at := range []*time.Time{&c.StartedAt, &c.FinishedAt, &c.Notes.Asked} {
				*at = i.clock.monotonic(c.ID, *at)
			}
			placed[n] = c
		}
		*all = placed
	}
	return seen
}
