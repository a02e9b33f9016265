package plan

import (
	"cmp"
	"slices"
	"time"

	"podrun.io/podrun/internal/pod"
)

// killRetry is how long to wait for the exit of a killed instance before it is killed again.
const killRetry = 5 * time.Second

// terminator plans the termination of instances. The grace periods are those of [Grace].
type terminator struct {
	plan     *Plan
	signals  map[string]pod.Signals // by instance ID
	limits   GraceLimits
	now      time.Time
	wholePod bool // a whole revision is terminated
	evicted  bool // because it is evicted
	goesOn   bool // it starts again by itself, unchanged
}

func newTerminator(plan *Plan, in Input) terminator {
	return terminator{plan: plan, signals: in.Signalled, limits: in.Limits, now: in.Now}
}

// grace returns what Grace decides from for the instance c.
func (t terminator) grace(c pod.Container) Termination {
	return Termination{
		Period: c.Grace, Limits: t.limits, WholePod: t.wholePod, Evicted: t.evicted,
		Signals: t.signals[c.ID], Now: t.now,
	}
}

// pod terminates the live instances of the revisions in o and reports whether there are any. All but
// the sidecars are terminated together. The sidecars follow in reverse order: the last of them when
// nothing else lives, then the one before it, each within what is left of its grace period.
func (t terminator) pod(o pod.Observed, why string) (alive bool) {
	t.wholePod = true
	for _, c := range o.Containers {
		if !isAlive(c) {
			continue
		}
		alive = true
		why := why
		if c.Stray {
			why = "not in any checkpoint"
		}
		began, s := t.began(o, c), t.signals[c.ID]
		switch {
		case t.limits.atOnce():
			t.kill(c, why)
		case t.anew(s):
			t.plan.add(RenewGrace{ID: c.ID, Container: c.Name, Why: why})
		case !t.runsOn(o, c, began):
			g := t.grace(c)
			if c.Sidecar > 0 {
				g.Began = began
			}
			t.instance(c, g, why)
		case preStopDue(c, s):
			// Only the stop signal waits for the order of the sidecars; preStop hooks run at once.
			hook, _ := Grace(t.grace(c))
			t.plan.add(RunPreStop{ID: c.ID, Container: c.Name, Grace: hook, Why: why, Yields: t.wholePod && !t.goesOn})
		}
	}
	return alive
}

// anew reports that the grace period with the signals s is not that of the termination of the pod, which begins its own
// for all instances: becameTerminating in the kubelet's pod_workers.go.
func (t terminator) anew(s pod.Signals) bool { return s.Alone && !t.goesOn }

// container terminates one instance whose pod goes on.
func (t terminator) container(c pod.Container, why string) { t.instance(c, t.grace(c), why) }

// instance terminates a live instance in steps: the preStop hook, the stop signal and, when the
// grace period is over, SIGKILL. With a grace period of 0 no hook is run.
func (t terminator) instance(c pod.Container, g Termination, why string) {
	s := g.Signals
	hook, kill := Grace(g)
	switch {
	case !s.Killed.IsZero() || t.limits.atOnce():
		t.kill(c, why)
	case preStopDue(c, s) && hook > 0:
		t.plan.add(RunPreStop{ID: c.ID, Container: c.Name, Grace: hook, Why: why, Yields: t.wholePod && !t.goesOn})
		t.plan.wakeIn(hook)
	case !s.Asked.IsZero() && s.Signalled.IsZero() && s.Hooking && hook > 0:
		t.plan.wakeIn(hook) // the hook is still running
	case s.Asked.IsZero() || s.Signalled.IsZero():
		// If the grace period has begun, podrun may have been killed while it sent the stop signal:
		// whether the signal was delivered is unknown, so it is sent again.
		t.plan.add(Terminate{ID: c.ID, Container: c.Name, Grace: kill, Why: why, Yields: t.wholePod && !t.goesOn})
		t.plan.wakeIn(kill)
	case kill > 0:
		t.plan.wakeIn(kill)
	default:
		t.plan.add(Kill{ID: c.ID, Container: c.Name, Why: "grace period over"})
	}
}

// kill kills a live instance at once, and again if it is still alive after the time killRetry.
func (t terminator) kill(c pod.Container, why string) {
	if killed := t.signals[c.ID].Killed; !killed.IsZero() {
		if left := killRetry - t.now.Sub(killed); left > 0 {
			t.plan.wakeIn(left)
			return
		}
		why = "still alive after kill"
	}
	t.plan.add(Kill{ID: c.ID, Container: c.Name, Why: why})
}

// runsOn reports whether a sidecar keeps running during termination for the containers that need
// it. It does until its grace period, which began at began, is over.
func (t terminator) runsOn(o pod.Observed, c pod.Container, began time.Time) bool {
	g := t.grace(c)
	if c.Sidecar == 0 || !g.Signals.Signalled.IsZero() || !g.Signals.Killed.IsZero() || !needed(o, c) {
		return false
	}
	if began.IsZero() {
		return true // this same plan terminates the containers that need it
	}
	g.Signals = pod.Signals{Asked: began}
	left, _ := Grace(g)
	if left > 0 {
		t.plan.wakeIn(left)
	}
	return left > 0
}

// began returns when the termination of the instances that end together with c began: the earliest request or SIGKILL;
// zero if there was none. It ignores instances of the sandbox that exited longer ago than c's grace period or that have
// a successor: those were terminated for another reason.
func (t terminator) began(o pod.Observed, c pod.Container) time.Time {
	var first time.Time
	now := t.now
	if asked := t.signals[c.ID].Asked; !asked.IsZero() {
		now = asked
	}
	g := t.grace(c)
	g.Signals = pod.Signals{}
	period, _ := Grace(g)
	for _, with := range o.Containers {
		former := !isAlive(with) && (with.FinishedAt.Before(now.Add(-period)) || hasLater(o, with))
		s := t.signals[with.ID]
		if with.UID != c.UID || with.SandboxID != c.SandboxID || former || t.anew(s) {
			continue
		}
		if at := cmp.Or(s.Asked, s.Killed); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// maxHookRuns is how often a preStop hook is begun: once more if podrun was killed while it ran.
const maxHookRuns = 2

// preStopDue reports whether the instance's preStop hook is to be run: it has not been run, or it was run by a podrun
// that was killed meanwhile. In the second case it gets what is left of the grace period.
func preStopDue(c pod.Container, s pod.Signals) bool {
	return c.PreStop && !s.Hooking && s.HookRuns < maxHookRuns && s.Hooked.IsZero() && s.Signalled.IsZero()
}

func isAlive(c pod.Container) bool { return c.State == pod.Running || c.State == pod.Unknown }

// needed reports whether a container lives that has to be terminated before the sidecar.
func needed(o pod.Observed, sidecar pod.Container) bool {
	return slices.ContainsFunc(o.Containers, func(c pod.Container) bool {
		return isAlive(c) && (c.Sidecar == 0 || c.Sidecar > sidecar.Sidecar)
	})
}

// hasLater reports whether there is a later instance of c's container.
func hasLater(o pod.Observed, c pod.Container) bool {
	return slices.ContainsFunc(o.Containers, func(other pod.Container) bool {
		return other.UID == c.UID && other.Name == c.Name && other.Attempt > c.Attempt
	})
}
