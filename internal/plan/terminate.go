package plan

import (
	"slices"
	"time"

	"podrun.io/podrun/internal/pod"
)

// atOnce reports whether everything is killed without a grace period, which only a user can
// request.
func (in reading) atOnce() bool { return in.MaxGrace != nil && *in.MaxGrace <= 0 }

// stopAll stops the live instances of o and reports whether there are any. All but the sidecars are
// terminated together. The sidecars follow in reverse order: the last of them when nothing else
// lives, then the one before it, each within what is left of its grace period, which is at least
// podGrace.
func (p *planner) stopAll(o pod.Observed, why string) (alive bool) {
	o.Containers = slices.Clone(o.Containers)
	for i := range o.Containers {
		o.Containers[i].Grace = p.in.graceInPod(o.Containers[i])
	}
	for _, c := range o.Containers {
		if !lives(c) {
			continue
		}
		alive = true
		why := why
		if c.Stray {
			why = "not in any checkpoint"
		}
		begun := p.in.begun(o, c)
		switch {
		case p.in.atOnce():
			p.kill(c, why)
		case !p.holdsOn(o, c, begun):
			p.stop(c, begun, why)
		case hookDue(c, p.in.Signalled[c.ID]):
			// Only the stop signal waits for the order of the sidecars; preStop hooks run at once.
			left := p.in.left(c.Grace, p.in.Signalled[c.ID].Asked)
			p.plan.do(RunPreStop{ID: c.ID, Container: c.Name, Grace: left, Why: why})
		}
	}
	return alive
}

// holdsOn reports whether a sidecar keeps running during termination for the containers that need
// it. It does until its grace period, which began at begun, is over.
func (p *planner) holdsOn(o pod.Observed, c pod.Container, begun time.Time) bool {
	s := p.in.Signalled[c.ID]
	if c.Sidecar == 0 || !s.Signalled.IsZero() || !s.Killed.IsZero() || !needed(o, c) {
		return false
	}
	if begun.IsZero() {
		return true // this same plan terminates the containers that need it
	}
	left := p.in.left(c.Grace, begun)
	if left > 0 {
		p.plan.wakeIn(left)
	}
	return left > 0
}

// hookDue reports whether the instance's preStop hook is to be run: it has not been run, or it was
// run by a podrun that was killed meanwhile. In the second case it gets what is left of the grace
// period.
func hookDue(c pod.Container, s pod.Signals) bool {
	return c.PreStop && !s.Hooking && s.Hooked.IsZero() && s.Signalled.IsZero()
}

// left returns what is left of a grace period that began at begun; all of it if begun is zero. The
// result is at most grace, so that a clock that was set back does not extend it.
func (in reading) left(grace time.Duration, begun time.Time) time.Duration {
	if begun.IsZero() {
		return grace
	}
	return min(grace, grace-in.Now.Sub(begun))
}

func lives(c pod.Container) bool { return c.State == pod.Running || c.State == pod.Unknown }

// needed reports whether a container lives that has to be terminated before the sidecar.
func needed(o pod.Observed, sidecar pod.Container) bool {
	for _, c := range o.Containers {
		if lives(c) && (c.Sidecar == 0 || c.Sidecar > sidecar.Sidecar) {
			return true
		}
	}
	return false
}

// begun returns when the termination of the instances that end together with c began: the earliest
// request or SIGKILL; zero if there was none. It ignores instances of the sandbox that exited
// longer ago than c's grace period or that have a successor: those were terminated for another
// reason.
func (in reading) begun(o pod.Observed, c pod.Container) time.Time {
	var first time.Time
	now := in.Now
	if asked := in.Signalled[c.ID].Asked; !asked.IsZero() {
		now = asked
	}
	for _, with := range o.Containers {
		former := !lives(with) && (with.FinishedAt.Before(now.Add(-c.Grace)) || hasLater(o, with))
		if with.UID != c.UID || with.SandboxID != c.SandboxID || former {
			continue
		}
		s := in.Signalled[with.ID]
		for _, at := range []time.Time{s.Asked, s.Killed} {
			if !at.IsZero() && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
	}
	return first
}

// hasLater reports whether there is a later instance of c's container.
func hasLater(o pod.Observed, c pod.Container) bool {
	return slices.ContainsFunc(o.Containers, func(other pod.Container) bool {
		return other.UID == c.UID && other.Name == c.Name && other.Attempt > c.Attempt
	})
}

// kill kills a live instance at once, and again if it is still alive after the time rekill.
func (p *planner) kill(c pod.Container, why string) {
	if killed := p.in.Signalled[c.ID].Killed; !killed.IsZero() {
		if left := rekill - p.in.Now.Sub(killed); left > 0 {
			p.plan.wakeIn(left)
			return
		}
		why = "still alive after kill"
	}
	p.plan.do(Kill{ID: c.ID, Container: c.Name, Why: why})
}

// stop terminates a live instance in steps: the preStop hook, the stop signal and, when the grace
// period is over, SIGKILL. The hook's time counts against the grace period, but the instance keeps
// at least leastGrace after the signal. With a grace period of 0 no hook is run. For a sidecar
// begun is when the grace period began.
func (p *planner) stop(c pod.Container, begun time.Time, why string) {
	s, grace := p.in.Signalled[c.ID], c.Grace
	if c.Sidecar > 0 && !begun.IsZero() {
		asked := s.Asked
		if asked.IsZero() {
			asked = p.in.Now
		}
		grace = max(c.Grace-asked.Sub(begun), leastGrace)
	}
	switch {
	case !s.Killed.IsZero() || p.in.atOnce():
		p.kill(c, why)
	case hookDue(c, s) && p.in.left(grace, s.Asked) > 0:
		p.plan.do(RunPreStop{ID: c.ID, Container: c.Name, Grace: p.in.left(grace, s.Asked), Why: why})
		p.plan.wakeIn(p.in.left(grace, s.Asked))
	case s.Asked.IsZero():
		grace = max(grace, leastGrace)
		p.plan.do(Terminate{ID: c.ID, Container: c.Name, Grace: grace, Why: why})
		p.plan.wakeIn(grace)
	case s.Signalled.IsZero():
		// The hook is still running, or podrun was killed while it sent the stop signal: whether
		// the signal was delivered is unknown, so it is sent again.
		left := p.in.left(grace, s.Asked)
		if c.PreStop && s.Hooked.IsZero() && left > 0 {
			p.plan.wakeIn(left)
			return
		}
		left = max(left, leastGrace)
		p.plan.do(Terminate{ID: c.ID, Container: c.Name, Grace: left, Why: why})
		p.plan.wakeIn(left)
	default:
		left := max(p.in.left(grace, s.Asked), p.in.left(leastGrace, s.Signalled))
		if left > 0 {
			p.plan.wakeIn(left)
			return
		}
		p.plan.do(Kill{ID: c.ID, Container: c.Name, Why: "grace period over"})
	}
}
