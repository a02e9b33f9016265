package plan

import (
	"slices"
	"time"

	"podrun.io/podrun/internal/pod"
)

const (
	// podGrace is the shortest grace period of a pod that is terminated, whatever its manifest or
	// an eviction says: the kubelet's calculateEffectiveGracePeriod (pkg/kubelet/pod_workers.go)
	// gives 1 s "no matter what". A preStop hook may use all of it.
	podGrace = time.Second
	// leastGrace is the shortest time between an instance's stop signal and SIGKILL, however long
	// its preStop hook or, for a sidecar, the other containers took: the kubelet's
	// minimumGracePeriodInSeconds (pkg/kubelet/kuberuntime).
	leastGrace = 2 * time.Second
	// evictionGrace is the grace period of a pod that exceeds its storage limits: the kubelet's
	// immediateEvictionGracePeriodSeconds (pkg/kubelet/eviction), which applies to all evictions by
	// such limits.
	evictionGrace = time.Second
)

// atOnce reports whether everything is killed without a grace period, which only a user can
// request.
func (j *judge) atOnce() bool { return j.in.MaxGrace != nil && *j.in.MaxGrace <= 0 }

// stopAll stops the live instances of o and reports whether there are any. All but the sidecars are
// terminated together. The sidecars follow in reverse order: the last of them when nothing else
// lives, then the one before it, each within what is left of its grace period, which is at least
// podGrace.
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
			why = "not in any checkpoint"
		}
		begun := j.begun(o, c)
		switch {
		case j.atOnce():
			j.kill(c, why)
		case !j.holdsOn(o, c, begun):
			j.stop(c, begun, why)
		case hookDue(c, j.in.Signalled[c.ID]):
			// Only the stop signal waits for the order of the sidecars; preStop hooks run at once.
			j.do(RunPreStop{ID: c.ID, Container: c.Name, Grace: j.left(c.Grace, j.in.Signalled[c.ID].Asked), Why: why})
		}
	}
	return alive
}

// holdsOn reports whether a sidecar keeps running during termination for the containers that need
// it. It does until its grace period, which began at begun, is over.
func (j *judge) holdsOn(o pod.Observed, c pod.Container, begun time.Time) bool {
	s := j.in.Signalled[c.ID]
	if c.Sidecar == 0 || !s.Signalled.IsZero() || !s.Killed.IsZero() || !needed(o, c) {
		return false
	}
	if begun.IsZero() {
		return true // this same plan terminates the containers that need it
	}
	left := j.left(c.Grace, begun)
	if left > 0 {
		j.wakeIn(left)
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
func (j *judge) left(grace time.Duration, begun time.Time) time.Duration {
	if begun.IsZero() {
		return grace
	}
	return min(grace, grace-j.in.Now.Sub(begun))
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

// hasLater reports whether there is a later instance of c's container.
func hasLater(o pod.Observed, c pod.Container) bool {
	return slices.ContainsFunc(o.Containers, func(other pod.Container) bool {
		return other.UID == c.UID && other.Name == c.Name && other.Attempt > c.Attempt
	})
}

// kill kills a live instance at once, and again if it is still alive after the time rekill.
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

// stop terminates a live instance in steps: the preStop hook, the stop signal and, when the grace
// period is over, SIGKILL. The hook's time counts against the grace period, but the instance keeps
// at least leastGrace after the signal. With a grace period of 0 no hook is run. For a sidecar
// begun is when the grace period began.
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
		// The hook is still running, or podrun was killed while it sent the stop signal: whether
		// the signal was delivered is unknown, so it is sent again.
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

// limited returns the containers with grace periods of at most limit.
func limited(all []pod.Container, limit time.Duration) []pod.Container {
	all = slices.Clone(all)
	for i := range all {
		all[i].Grace = min(all[i].Grace, limit)
	}
	return all
}
