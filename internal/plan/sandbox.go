package plan

import (
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// FailureSandbox and a sandbox's ID are the key in Input.Failures of a failed removal of that sandbox.
const FailureSandbox = "sandbox "

// FailureMount is the key in Input.Failures of the pod's volumes, if one could not be mounted.
const FailureMount = "volumes "

// ReasonFailedSandbox is the reason of a failure to create a sandbox that has no reason of its own.
const ReasonFailedSandbox = "FailedCreatePodSandBox"

// ensureSandbox returns the sandbox to run in and whether it is ready. If there is none, it plans
// one, after everything that runs in a lost sandbox has exited.
func ensureSandbox(plan *Plan, r revision) (pod.Sandbox, bool) {
	attempt := 0
	for i, s := range r.mine.Sandboxes {
		if i == 0 && s.Ready {
			return s, true
		}
		attempt = max(attempt, s.Attempt+1)
	}
	all := pod.AllContainers(r.Pod)
	plan.wait(NotYet(r.Pod), all...)
	terminator := newTerminator(plan, r.Input)
	terminator.goesOn = true
	if terminator.pod(r.mine, "sandbox lost") {
		return pod.Sandbox{}, false
	}
	removeLostSandboxes(plan, r.Input, r.mine.Sandboxes)
	if why := admit(r.Input); why != nil {
		plan.Failure, plan.Never = why, never(r.Input)
		return pod.Sandbox{}, false
	}
	if f, failed := r.Failures[""]; failed {
		plan.wait(waitingForSandbox(f, NotYet(r.Pod)), all...)
		if left := r.untilRetry(""); left > 0 {
			plan.retryAt(r.Now.Add(left), r.Now)
			return pod.Sandbox{}, false
		}
	}
	// Images come first, so that pulls run while the sandbox is created.
	for _, c := range all {
		if imageDue(r, c) {
			plan.add(EnsureImage{Container: c.Name})
		}
	}
	plan.add(CreateSandbox{Attempt: attempt})
	return pod.Sandbox{}, false
}

// imageDue reports whether the image is missing of a container that is started as soon as there is a sandbox.
func imageDue(r revision, c *v1.Container) bool {
	last, found := r.mine.Newest(r.Pod.UID, c.Name)
	due := !found || last.State == pod.Exited && (isInit(r.Pod, c.Name) || r.isFollowed(c, last))
	_, failed := r.Failures[c.Name]
	image := r.Images[c.Name]
	return due && !failed && !image.Ready && !image.Pulling
}

// waitingForSandbox returns the waiting state of containers whose sandbox failed. As in Kubernetes
// the reason is that of notYet, unless the failure has a more precise one.
func waitingForSandbox(f Failure, notYet Waiting) Waiting {
	if f.Reason == ReasonFailedSandbox {
		return Waiting{Reason: notYet.Reason, Message: f.Message}
	}
	return Waiting{Reason: f.Reason, Message: f.Message}
}
