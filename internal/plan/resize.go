package plan

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// A change of CPU and memory takes two steps, as in the kubelet. First the pod is allocated the new amount, if the
// machine has what is requested beside the allocations of the other pods; until then the pod stays as it is. Then the
// running instances get the allocated resources: in place or, where resizePolicy says so, by a new instance.

// FailureResize and a container's name are the key in Input.Failures of a failed resize.
const FailureResize = "resize "

// allocate plans the allocation of what the manifest requests, and reports whether it did. A request is infeasible, as
// for the kubelet, if the machine cannot satisfy it even without other pods: waiting does not help.
func allocate(plan *Plan, in Input) bool {
	if in.Resized == nil {
		return false
	}
	more := AdditionalRequests(in.Pod, in.Resized)
	if lack := (Machine{Has: in.Machine.Has}).Lack(more); lack != nil {
		plan.ResizePending = &Waiting{Reason: v1.PodReasonInfeasible, Message: lack.Message}
		return false
	}
	if lack := in.Machine.Lack(more); lack != nil {
		plan.ResizePending = &Waiting{Reason: v1.PodReasonDeferred, Message: lack.Message}
		return false
	}
	plan.add(Allocate{})
	return true
}

// AdditionalRequests returns the requests of to that are higher than those of from. A request that gets lower
// never waits.
func AdditionalRequests(from, to *v1.Pod) v1.ResourceList {
	more, had := v1.ResourceList{}, Requests(from)
	for name, quantity := range Requests(to) {
		if quantity.Cmp(had[name]) > 0 {
			more[name] = quantity
		}
	}
	return more
}

// resize plans the change of a running instance's CPU and memory if they differ from what the pod has been allocated.
func (s containers) resize(c *v1.Container, last pod.Container) {
	to, cpus := pod.ResourcesOf(s.Pod, c), s.Machine.CPUs.Of(c.Name, last.CPUs)
	resized := to == last.Resources && last.Resizing == ""
	if resized && cpus == last.CPUs {
		return
	}
	if !resized {
		s.plan.resizing()
	}
	if pod.NeedsRestart(c, last.Resources, to) {
		s.plan.add(RestartForResize{ID: last.ID, Container: c.Name})
		return
	}
	if f, failed := s.Failures[FailureResize+c.Name]; failed {
		s.plan.Resizing = &Waiting{Reason: v1.PodReasonError, Message: f.Message}
		if left := s.untilRetry(FailureResize + c.Name); left > 0 {
			s.plan.wakeIn(left)
			return
		}
	}
	s.plan.add(Resize{ID: last.ID, Container: c.Name, To: to, CPUs: cpus})
}

// ResizeRestart returns the failure that terminates an instance of the container so that a new one gets others.
func ResizeRestart(container string) *pod.Failed {
	return &pod.Failed{Why: fmt.Sprintf("Container %s resize requires restart", container), Resize: true}
}
