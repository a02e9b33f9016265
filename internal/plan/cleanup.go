package plan

import (
	"slices"

	"podrun.io/podrun/internal/pod"
)

// remove terminates all of o and, once nothing of it lives, removes it. Records of containers that have run are removed
// last: as long as one is left, podrun knows that there is something to remove. It reports whether nothing lives.
func remove(plan *Plan, in Input, o pod.Observed, why string) bool {
	if newTerminator(plan, in).pod(o, why) {
		return false
	}
	reap(plan, o)
	removeSandboxes(plan, o, why, false)
	for _, uid := range o.Data {
		plan.add(RemoveData{UID: uid})
	}
	for _, c := range o.Containers {
		if c.State != pod.Created {
			plan.add(RemoveContainer{ID: c.ID, Container: c.Name, Why: why})
		}
	}
	return true
}

// reap reaps the exited instances of o.
func reap(plan *Plan, o pod.Observed) {
	for _, c := range o.Containers {
		if c.State == pod.Exited && !c.Reaped {
			plan.add(Reap{ID: c.ID, Container: c.Name})
		}
	}
}

// reapLost reaps instances of this boot whose exit nobody observed, before anything is started in
// their place: their processes may still run, which the executor of the Reap finds out. It reports
// whether there are any. No process survives a reboot, so instances of earlier boots are left out.
func reapLost(plan *Plan, in Input) (found bool) {
	for _, c := range in.Observed.Containers {
		if c.State == pod.Exited && !c.Reaped && c.Reason == pod.ReasonLost && c.Boot == in.Boot {
			plan.add(Reap{ID: c.ID, Container: c.Name})
			found = true
		}
	}
	return found
}

// removeSandboxes removes the sandboxes of o, of which nothing lives, and before that what never started in them.
func removeSandboxes(plan *Plan, o pod.Observed, why string, completed bool) {
	for _, c := range o.Containers {
		if c.State == pod.Created {
			plan.add(RemoveContainer{ID: c.ID, Container: c.Name, Why: "never started"})
		}
	}
	for _, s := range o.Sandboxes {
		plan.add(RemoveSandbox{ID: s.ID, Why: why, Completed: completed})
	}
}

// removeSuperseded removes all but the newest exited instance of each container, whose state the pod status needs.
func removeSuperseded(plan *Plan, o pod.Observed) {
	for _, c := range o.Containers {
		superseded := slices.ContainsFunc(o.Containers, func(later pod.Container) bool {
			return later.Name == c.Name && later.Attempt > c.Attempt && later.State == pod.Exited
		})
		if c.State == pod.Exited && superseded {
			plan.add(RemoveContainer{ID: c.ID, Container: c.Name, Why: "superseded"})
		}
	}
}

// removeLostSandboxes removes sandboxes in which nothing runs. A removal that fails, for example
// because a network plugin fails, is retried later and delays nothing else.
func removeLostSandboxes(plan *Plan, in Input, lost []pod.Sandbox) {
	for _, s := range lost {
		if left := in.untilRetry(FailureSandbox + s.ID); left > 0 {
			plan.wakeIn(left)
			continue
		}
		plan.add(RemoveSandbox{ID: s.ID, Why: "not ready", Lost: true})
	}
}
