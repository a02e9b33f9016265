package plan

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// A user may request the restart of an instance. The request names the instance by its ID, which is used once: the same
// request twice, or one that comes late, restarts nothing a second time. It is accepted by saving the restart in the
// checkpoint as the reason to terminate the instance. From then on the restart does not depend on the request: the
// instance is terminated within its grace period, and the next one starts without a back-off, whatever the policy.

// acceptRequests plans the acceptance of the requested restarts, and reports whether there are any. Only an instance
// that runs or that another one follows is restarted, not a container that has completed.
func acceptRequests(plan *Plan, r revision) (accepted bool) {
	for _, c := range pod.AllContainers(r.Pod) {
		last, lost, found := r.mine.Last(r.Pod.UID, c.Name)
		if !found || lost || !r.Probed[last.ID].RestartRequested || r.restartsOnRequest(last) {
			continue
		}
		again := last.State == pod.Exited && r.restarts(c, last) && !r.initialized(c, last)
		if last.State == pod.Running || again {
			accepted = true
			plan.add(RestartOnRequest{ID: last.ID, Container: c.Name})
		}
	}
	return accepted
}

// initialized reports that c is an init container that has succeeded.
func (r revision) initialized(c *v1.Container, last pod.Container) bool {
	return isInit(r.Pod, c.Name) && !pod.IsSidecar(c) && last.ExitCode == 0
}

// restartsOnRequest reports that the restart of the instance was requested and accepted.
func (r revision) restartsOnRequest(c pod.Container) bool {
	failed := r.Probed[c.ID].Failed
	return failed != nil && failed.Requested
}

// requestedLives reports whether an instance lives whose restart was requested: a sidecar, or a
// container that may need one.
func (r revision) requestedLives(sidecar bool) bool {
	return slices.ContainsFunc(r.mine.Containers, func(c pod.Container) bool {
		return isAlive(c) && (c.Sidecar > 0) == sidecar && r.restartsOnRequest(c)
	})
}

// RequestedRestart returns the reason to terminate an instance whose restart a user has requested.
func RequestedRestart() *pod.Failed { return &pod.Failed{Why: "restart requested", Requested: true} }
