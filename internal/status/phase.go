package status

import (
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// phase derives the phase from the containers' states as the kubelet's getPhase does. A pod of which something may run
// has no result yet, as with the kubelet: what waits for the result may take its place.
func phase(p *v1.Pod, s v1.PodStatus, of plan.Plan) v1.PodPhase {
	if of.Completed {
		return result(p, s)
	}
	waiting, running := false, false
	for i, c := range s.ContainerStatuses {
		t := c.State.Terminated
		switch {
		case c.State.Running != nil, c.LastTerminationState.Terminated != nil && t == nil:
			running = true // running, or between two instances
		case t == nil:
			waiting = true
		case plan.ShouldRestart(p, &p.Spec.Containers[i], int(t.ExitCode)):
			running = true
		}
	}
	initializing := false // initializing again, in a new sandbox
	for i, c := range s.InitContainerStatuses {
		if pod.IsSidecar(&p.Spec.InitContainers[i]) {
			running = running || c.State.Running != nil
			continue
		}
		initializing = initializing || c.State.Running != nil
	}
	switch {
	case initializing || waiting || !initialized(p, s):
		return v1.PodPending
	case running, of.Unsure:
		return v1.PodRunning
	}
	return result(p, s)
}

// result returns the phase of a pod that has finished: Succeeded or Failed.
func result(p *v1.Pod, s v1.PodStatus) v1.PodPhase {
	failed := func(c v1.ContainerStatus) bool {
		t := c.State.Terminated
		return t == nil || t.ExitCode != 0
	}
	for i, c := range s.InitContainerStatuses {
		if !pod.IsSidecar(&p.Spec.InitContainers[i]) && failed(c) && !begun(s) {
			return v1.PodFailed
		}
	}
	for _, c := range s.ContainerStatuses {
		if failed(c) {
			return v1.PodFailed
		}
	}
	return v1.PodSucceeded
}

// begun reports whether a container that waits for all init containers has run.
func begun(s v1.PodStatus) bool {
	for _, c := range s.ContainerStatuses {
		if c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil {
			return true
		}
	}
	return false
}

// initialized reports whether all init containers have done what the pod's containers wait for.
// Once one of the pod's containers has run it stays true.
func initialized(p *v1.Pod, s v1.PodStatus) bool { return begun(s) || len(incomplete(p, s)) == 0 }

// incomplete returns the init containers that have not succeeded and the sidecars that have not
// started.
func incomplete(p *v1.Pod, s v1.PodStatus) []string {
	var names []string
	for i, c := range s.InitContainerStatuses {
		done := c.Ready
		if pod.IsSidecar(&p.Spec.InitContainers[i]) {
			done = c.Started != nil && *c.Started
		}
		if !done {
			names = append(names, c.Name)
		}
	}
	return names
}
