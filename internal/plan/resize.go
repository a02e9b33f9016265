package plan

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// A change of CPU and memory takes two steps, as in the kubelet. First the pod is allocated the new
// amount, if the machine has what is requested beside the allocations of the other pods; until then
// the pod stays as it is. Then the running instances get the allocated resources: in place or,
// where resizePolicy says so, by a new instance.

// FailureResize and a container's name are the key in Input.Failures of a failed resize.
const FailureResize = "resize "

// FailureSandbox and a sandbox's ID are the key in Input.Failures of a failed removal of that
// sandbox.
const FailureSandbox = "sandbox "

// allocate plans the allocation of what the manifest requests, and reports whether it did. A request
// is infeasible, as for the kubelet, if the machine cannot satisfy it even without other pods:
// waiting does not help.
func (j *judge) allocate() bool {
	if j.in.Resized == nil {
		return false
	}
	more := Growth(j.in.Pod, j.in.Resized)
	if lack := Lacking(more, nil, j.in.Node); lack != nil {
		j.plan.ResizePending = &Waiting{Reason: v1.PodReasonInfeasible, Message: lack.Message}
		return false
	}
	if lack := Lacking(more, j.in.Used, j.in.Node); lack != nil {
		j.plan.ResizePending = &Waiting{Reason: v1.PodReasonDeferred, Message: lack.Message}
		return false
	}
	j.do(Allocate{})
	return true
}

// Growth returns the requests of to that are higher than those of from. A request that gets lower
// never waits.
func Growth(from, to *v1.Pod) v1.ResourceList {
	more, had := v1.ResourceList{}, Requests(from)
	for name, quantity := range Requests(to) {
		if quantity.Cmp(had[name]) > 0 {
			more[name] = quantity
		}
	}
	return more
}

// resize plans the change of a running instance's CPU and memory if they differ from what the pod
// has been allocated.
func (j *judge) resize(c *v1.Container, last pod.Container) {
	to := pod.ResourcesOf(j.in.Pod, c)
	if to == last.Resources {
		return
	}
	j.resizing()
	if pod.NeedsRestart(c, last.Resources, to) {
		j.do(Renew{ID: last.ID, Container: c.Name})
		return
	}
	if f, failed := j.in.Failures[FailureResize+c.Name]; failed {
		j.plan.Resizing = &Waiting{Reason: v1.PodReasonError, Message: f.Message}
		if left := retryDelay(f) - j.in.Now.Sub(f.At); left > 0 {
			j.wakeIn(left)
			return
		}
	}
	j.do(Resize{ID: last.ID, Container: c.Name, To: to})
}

// resizing records in the plan that something does not have the allocated resources yet.
func (j *judge) resizing() {
	if j.plan.Resizing == nil {
		j.plan.Resizing = &Waiting{}
	}
}

// RenewFailed returns the failure that terminates an instance of the named container so that a new
// one gets other resources.
func RenewFailed(container string) *pod.Failed {
	return &pod.Failed{Why: fmt.Sprintf("Container %s resize requires restart", container), Resize: true}
}
