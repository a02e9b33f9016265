package reconcile

import (
	"slices"
	"time"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// instances is what the worker has done to its pod's instances, by instance ID.
type instances struct {
	clock     clock
	signalled map[string]pod.Signals
	late      map[string]bool        // the last signal timed out
	renewed   map[string]*pod.Failed // the instance is replaced for a resize
}

func newInstances(wall func() time.Time) *instances {
	return &instances{
		clock:     newClock(wall),
		signalled: map[string]pod.Signals{},
		late:      map[string]bool{},
		renewed:   map[string]*pod.Failed{},
	}
}

// remove removes an instance that is being removed from the machine.
func (i *instances) remove(id string) {
	delete(i.signalled, id)
	delete(i.late, id)
	delete(i.renewed, id)
}

// terminating reports that the termination of an instance has begun.
func (i *instances) terminating(id string) bool { return i.signalled[id] != pod.Signals{} }

// ending reports that the termination of any instance has begun.
func (i *instances) ending(seen pod.Observed) bool {
	return slices.ContainsFunc(seen.Containers, func(c pod.Container) bool { return i.terminating(c.ID) })
}

// signals returns what was sent to an instance, by this process or as the checkpoint says.
func (i *instances) signals(c pod.Container) pod.Signals {
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
func (i *instances) recorded(id string) pod.Signals {
	s := i.signalled[id]
	for _, at := range []*time.Time{&s.Asked, &s.Hooked, &s.Signalled, &s.Killed} {
		*at = i.clock.recorded(*at)
	}
	return s
}

// resume continues the terminations that an earlier podrun process began.
func (i *instances) resume(seen pod.Observed) {
	for _, c := range seen.Containers {
		if s := i.signals(c); !c.Reaped && s != (pod.Signals{}) {
			i.signalled[c.ID] = s
		}
	}
}

// endedByItself reports that an instance exited before its termination began.
func (i *instances) endedByItself(c pod.Container) bool {
	if c.State != pod.Exited {
		return false
	}
	ended, s := i.clock.monotonic(c.ID, c.FinishedAt), i.signals(c)
	for _, at := range []time.Time{s.Asked, s.Killed} {
		if !at.IsZero() && !ended.Before(at) {
			return false
		}
	}
	return true
}

// prompt removes the signals to instances whose last signal timed out, unless there are no other
// actions. So the pod's other containers are served first.
func (i *instances) prompt(actions []plan.Action) []plan.Action {
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
