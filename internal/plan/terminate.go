package plan

import (
	"slices"
	"time"

	"podrun.io/podrun/internal/pod"
)

const (
	// podGrace is the least grace period of a pod that is ended, whatever its manifest or an eviction says: the
	// kubelet's calculateEffectiveGracePeriod (pkg/kubelet/pod_workers.go) gives 1 s "no matter what". A preStop hook
	// has as much of it as it needs.
	podGrace = time.Second
	// leastGrace is the least time between an instance's stop signal and KILL, however long its preStop hook or, for
	// a sidecar, the others took: the kubelet's minimumGracePeriodInSeconds (pkg/kubelet/kuberuntime).
	leastGrace = 2 * time.Second
	// evictionGrace is the grace period of a pod that has outgrown its limits of the disk: the kubelet's
	// immediateEvictionGracePeriodSeconds (pkg/kubelet/eviction), for all of its evictions by such limits.
	evictionGrace = time.Second
)

// atOnce reports that nothing is given any time to end: nobody but a person asks for that.
func (j *judge) atOnce() bool { return j.in.MaxGrace != nil && *j.in.MaxGrace <= 0 }

// stopAll stops what lives of o and reports whether anything does. All are asked at once but the sidecars:
// the last of them is asked when nothing else lives, then the one before it, each within what is left of
// its grace period, which is at least podGrace.
func (j *judge) stopAll(o pod.Observed, why string) (alive bool) {
	o.Containers = slices.Clone(o.Containers)
	for i := range o.Containers {
		o.Containers[i].Grace = max(o.Containers[i].Grace, podGrace)
	}
	for _, c := range o.Containers {
		if !lives(c) {
			continue
		}
		alive = true
		why := why
		if c.Stray {
			why = "no checkpoint names it"
		}
		begun := j.begun(o, c)
		switch {
		case j.atOnce():
			j.kill(c, why)
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
	if c.Sidecar == 0 || !s.Signalled.IsZero() || !s.Killed.IsZero() || !needed(o, c) {
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
	return c.PreStop && !s.Hooking && s.Hooked.IsZero() && s.Signalled.IsZero()
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

// begun is when the first of those that end with c was asked to end; zero when none was. What of its sandbox has ended
// long ago or has a successor was ended for a reason of its own.
func (j *judge) begun(o pod.Observed, c pod.Container) time.Time {
	var first time.Time
	now := j.in.Now
	if asked := j.in.Signalled[c.ID].Asked; !asked.IsZero() {
		now = asked
	}
	for _, with := range o.Containers {
		former := !lives(with) && (with.FinishedAt.Before(now.Add(-c.Grace)) || hasLater(o, with))
		if with.UID != c.UID || with.SandboxID != c.SandboxID || former {
			continue
		}
		s := j.in.Signalled[with.ID]
		for _, at := range []time.Time{s.Asked, s.Killed} {
			if !at.IsZero() && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
	}
	return first
}

// hasLater reports that there is a later instance of c's container.
func hasLater(o pod.Observed, c pod.Container) bool {
	return slices.ContainsFunc(o.Containers, func(other pod.Container) bool {
		return other.UID == c.UID && other.Name == c.Name && other.Attempt > c.Attempt
	})
}

// kill ends one living instance at once, and again when it is not seen dead.
func (j *judge) kill(c pod.Container, why string) {
	if killed := j.in.Signalled[c.ID].Killed; !killed.IsZero() {
		if left := rekill - j.in.Now.Sub(killed); left > 0 {
			j.wakeIn(left)
			return
		}
		why = "still alive after kill"
	}
	j.do(Kill{ID: c.ID, Container: c.Name, Why: why})
}

// stop brings one living instance to its end: after its preStop hook it is asked, and when its grace is over
// it is killed. The hook is paid from the grace period, but for leastGrace; with a grace period of 0 there is
// no hook. begun is when the grace period of a sidecar began.
func (j *judge) stop(c pod.Container, begun time.Time, why string) {
	s, grace := j.in.Signalled[c.ID], c.Grace
	if c.Sidecar > 0 && !begun.IsZero() {
		asked := s.Asked
		if asked.IsZero() {
			asked = j.in.Now
		}
		grace = max(c.Grace-asked.Sub(begun), leastGrace)
	}
	switch {
	case !s.Killed.IsZero() || j.atOnce():
		j.kill(c, why)
	case hookDue(c, s) && j.left(grace, s.Asked) > 0:
		j.do(RunPreStop{ID: c.ID, Container: c.Name, Grace: j.left(grace, s.Asked), Why: why})
		j.wakeIn(j.left(grace, s.Asked))
	case s.Asked.IsZero():
		grace = max(grace, leastGrace)
		j.do(Terminate{ID: c.ID, Container: c.Name, Grace: grace, Why: why})
		j.wakeIn(grace)
	case s.Signalled.IsZero():
		// Its hook runs, or podrun was killed as it told it: perhaps it was told, perhaps not.
		left := j.left(grace, s.Asked)
		if c.PreStop && s.Hooked.IsZero() && left > 0 {
			j.wakeIn(left)
			return
		}
		left = max(left, leastGrace)
		j.do(Terminate{ID: c.ID, Container: c.Name, Grace: left, Why: why})
		j.wakeIn(left)
	default:
		left := max(j.left(grace, s.Asked), j.left(leastGrace, s.Signalled))
		if left > 0 {
			j.wakeIn(left)
			return
		}
		j.do(Kill{ID: c.ID, Container: c.Name, Why: "grace period over"})
	}
}

// limited are the containers with no longer a grace period than limit.
func limited(all []pod.Container, limit time.Duration) []pod.Container {
	all = slices.Clone(all)
	for i := range all {
		all[i].Grace = min(all[i].Grace, limit)
	}
	return all
}
