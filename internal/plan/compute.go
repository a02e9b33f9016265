package plan

import (
	"slices"

	"podrun.io/podrun/internal/pod"
)

// ReasonTerminated and shutdownMessage are the kubelet's words for a pod that a shutdown of the machine has terminated.
const ReasonTerminated, shutdownMessage = "Terminated", "Pod was terminated in response to imminent node shutdown."

// Compute returns the plan for in. The same input always gives the same plan.
func Compute(in Input) Plan {
	plan := Plan{Waiting: map[string]Waiting{}}
	if in.Pod == nil {
		if remove(&plan, in, in.Observed, "not wanted") {
			plan.Gone = in.Observed.Empty()
		}
		return plan
	}
	switch r := newRevision(in); {
	case r.runsAgain():
		plan.Again = true
		if in.Resized != nil {
			plan.add(Allocate{Anew: true})
		}
		remove(&plan, in, in.Observed, "pod starts again")
		plan.wait(NotYet(in.Pod), pod.AllContainers(in.Pod)...)
	default:
		sync(&plan, r)
	}
	return plan
}

// Final reports whether the wanted revision has finished and is not started again, so that its
// result is final. Some of its containers may still be terminating. Input.Pod must not be nil.
func Final(in Input) bool {
	r := newRevision(in)
	_, over := r.over()
	return over && !r.runsAgain() && !r.beginsAnew()
}

// sync plans for a pod that is wanted. Older revisions are stopped completely before the wanted one
// runs; their remains are removed last, because nothing waits for that.
func sync(plan *Plan, r revision) {
	if reapLost(plan, r.Input) {
		plan.Unsure = true
		return
	}
	_, old := r.Observed.Split(r.Pod.UID)
	if newTerminator(plan, r.Input).pod(old, "replaced by another revision") {
		plan.wait(NotYet(r.Pod), pod.AllContainers(r.Pod)...)
		return
	}
	if len(old.Sandboxes) > 0 && r.Machine.isExclusive(r.Pod) {
		remove(plan, r.Input, old, "replaced by another revision")           // the old sandbox has what the new one needs
		plan.Actions = slices.DeleteFunc(plan.Actions, func(a Action) bool { // its volumes are kept for the new one
			_, is := a.(RemoveData)
			return is
		})
		plan.wait(NotYet(r.Pod), pod.AllContainers(r.Pod)...)
		return
	}
	// The wanted revision asks for its volumes before the older one gives its own back: nobody else gets them between.
	if run(plan, r); !plan.starting() && !r.pulling() {
		remove(plan, r.Input, old, "replaced by another revision")
	}
}

// run plans for the wanted revision.
func run(plan *Plan, r revision) {
	if r.late() {
		plan.Failure = &Waiting{"DeadlineExceeded", "Pod was active on the node longer than the specified deadline"}
	}
	if r.Evicted != "" {
		plan.Failure = &Waiting{Reason: "Evicted", Message: r.Evicted}
	}
	if r.cutOff { // before anything else made it fail
		plan.Failure = &Waiting{ReasonTerminated, shutdownMessage}
	}
	terminator := newTerminator(plan, r.Input)
	if why, over := r.over(); over {
		terminator.evicted = r.Evicted != ""
		if terminator.pod(r.mine, why) {
			return
		}
		plan.Completed = true
		// The result is reported once it is recorded, and does not wait for the sandbox.
		if reap(plan, r.mine); len(plan.Actions) == 0 {
			removeSandboxes(plan, r.mine, "pod completed", true)
		}
		return
	}
	if r.Limits.Shutdown != nil {
		switch {
		case r.interrupts():
			// Before the first signal: the exit code 0 that may follow it is no success.
			plan.add(Interrupt{Must: r.forGood})
		case !terminator.pod(r.mine, "node is shutting down"):
			if reap(plan, r.mine); r.Limits.Published && len(plan.Actions) == 0 {
				plan.add(ReleaseVolumes{}) // while the drivers, which end last, are there
			}
		}
		plan.wait(Waiting{"NodeShutdown", shutdownMessage}, pod.AllContainers(r.Pod)...)
		return
	}
	if deadline, has := r.deadline(); has {
		plan.wakeIn(deadline.Sub(r.Now))
	}
	if acceptRequests(plan, r) || allocate(plan, r.Input) {
		return
	}
	sandbox, ready := ensureSandbox(plan, r)
	if !ready {
		return
	}
	if why := refusal(r.Input); why != nil && !r.ranIn(sandbox) {
		plan.Failure = why
		plan.wait(NotYet(r.Pod), pod.AllContainers(r.Pod)...)
		return
	}
	if endGeneration(plan, r) {
		plan.Restarting = true
		plan.wait(NotYet(r.Pod), pod.AllContainers(r.Pod)...)
		return
	}
	containers := containers{revision: r, plan: plan, sandbox: sandbox}
	if (initContainers{containers}).sync() {
		containers.sync()
	}
	if !plan.starting() {
		reap(plan, r.mine)
		removeSuperseded(plan, r.mine)
		removeLostSandboxes(plan, r.Input, slices.DeleteFunc(slices.Clone(r.mine.Sandboxes), func(s pod.Sandbox) bool {
			return s.ID == sandbox.ID
		}))
	}
}
