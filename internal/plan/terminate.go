package plan

import (
	"slices"
	"time"

	"podrun.io/podrun/internal/pod"
)

// leastGrace is what an instance is given to end however long its preStop hook took, or, for a sidecar, the
// others, as by the kubelet.
const leastGrace = 2 * time.Second

// stopAll stops what lives of o and reports whether anything does. All are asked at once but the sidecars:
// the last of them is asked when nothing else lives, then the one before it, each within what is left of
// its grace period.
func (j *judge) stopAll(o pod.Observed, why string) (alive bool) {
	begun := j.begun(o)
	for _, c := range o.Containers {
		if !lives(c) {
			continue
		}
		alive = true
		switch {
		case !j.holdsOn(o, c, begun):
			j.stop(c, begun, why)
		case hookDue(c, j.in.Signalled[c.ID]):
			// Hooks do not wait for their turn, only the signal does.
			j.do(RunPreStop{ID: c.ID, Container: c.Name, Grace: j.left(c.Grace, j.in.Signalled[c.ID].Asked), Why: why})
		}
	}
	return alive
}

// holdsOn reports that a sidecar has to go on for those that need it, though everything is to end.
func (j *judge) holdsOn(o pod.Observed, c pod.Container, begun time.Time) bool {
	s := j.in.Signalled[c.ID]
	if c.Sidecar == 0 || c.Grace <= 0 || !s.Told.IsZero() || !s.Killed.IsZero() || !needed(o, c) {
		return false
	}
	if begun.IsZero() {
		return true // those that need it are asked by this same plan
	}
	left := j.left(c.Grace, begun)
	if left > 0 {
		j.wakeIn(left)
	}
	return left > 0
}

// hookDue reports that the instance's preStop hook is to be run: nobody has run it yet, or who did was podrun
// before it was killed. It has what is left of the grace period then.
func hookDue(c pod.Container, s pod.Signals) bool {
	return c.PreStop && !s.Hooking && s.Hooked.IsZero() && s.Told.IsZero()
}

// left is what is left of a grace period that began then; all of it when it has not begun. A clock that was
// set back must not stretch it.
func (j *judge) left(grace time.Duration, begun time.Time) time.Duration {
	if begun.IsZero() {
		return grace
	}
	return min(grace, grace-j.in.Now.Sub(begun))
}

func lives(c pod.Container) bool { return c.State == pod.Running || c.State == pod.Unknown }

// needed reports that a container lives that the sidecar has to outlive.
func needed(o pod.Observed, sidecar pod.Container) bool {
	for _, c := range o.Containers {
		if lives(c) && (c.Sidecar == 0 || c.Sidecar > sidecar.Sidecar) {
			return true
		}
	}
	return false
}

// begun is when the first of o was asked to end; zero when none was.
func (j *judge) begun(o pod.Observed) time.Time {
	var first time.Time
	for _, c := range o.Containers {
		s := j.in.Signalled[c.ID]
		for _, at := range []time.Time{s.Asked, s.Killed} {
			if !at.IsZero() && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
	}
	return first
}

// stop brings one living instance to its end: after its preStop hook it is asked, and when its grace is over
// it is killed. The hook is paid from the grace period, but for a last rest. begun is when
// the grace period of a sidecar began.
func (j *judge) stop(c pod.Container, begun time.Time, why string) {
	s, grace := j.in.Signalled[c.ID], c.Grace
	if c.Sidecar > 0 && !begun.IsZero() {
		asked := s.Asked
		if asked.IsZero() {
			asked = j.in.Now
		}
		grace = max(c.Grace-asked.Sub(begun), min(leastGrace, c.Grace))
	}
	switch {
	case !s.Killed.IsZero():
		if left := rekill - j.in.Now.Sub(s.Killed); left > 0 {
			j.wakeIn(left)
			return
		}
		j.do(Kill{ID: c.ID, Container: c.Name, Why: "still alive after kill"})
	case c.Grace <= 0:
		j.do(Kill{ID: c.ID, Container: c.Name, Why: why})
	case hookDue(c, s) && j.left(grace, s.Asked) > 0:
		j.do(RunPreStop{ID: c.ID, Container: c.Name, Grace: j.left(grace, s.Asked), Why: why})
		j.wakeIn(j.left(grace, s.Asked))
	case s.Asked.IsZero():
		j.do(Terminate{ID: c.ID, Container: c.Name, Grace: grace, Why: why})
		j.wakeIn(grace)
	case s.Told.IsZero():
		// Its hook runs, or podrun was killed as it told it: perhaps it was told, perhaps not.
		left := j.left(grace, s.Asked)
		if c.PreStop && s.Hooked.IsZero() && left > 0 {
			j.wakeIn(left)
			return
		}
		left = max(left, rest(c))
		j.do(Terminate{ID: c.ID, Container: c.Name, Grace: left, Why: why})
		j.wakeIn(left)
	default:
		left := max(j.left(grace, s.Asked), j.left(rest(c), s.Told))
		if left > 0 {
			j.wakeIn(left)
			return
		}
		j.do(Kill{ID: c.ID, Container: c.Name, Why: "grace period over"})
	}
}

// rest is what an instance has at least from its stop signal on.
func rest(c pod.Container) time.Duration {
	if c.PreStop {
		return leastGrace
	}
	return min(leastGrace, c.Grace)
}

// hurried are the containers with no longer a grace period than limit.
func hurried(all []pod.Container, limit time.Duration) []pod.Container {
	all = slices.Clone(all)
	for i := range all {
		all[i].Grace = min(all[i].Grace, limit)
	}
	return all
}
