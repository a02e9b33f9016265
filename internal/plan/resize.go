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
func (p *planner) allocate() bool {
	if p.in.Resized == nil {
		return false
	}
	more := Growth(p.in.Pod, p.in.Resized)
	if lack := Lacking(more, nil, p.in.Node); lack != nil {
		p.plan.ResizePending = &Waiting{Reason: v1.PodReasonInfeasible, Message: lack.Message}
		return false
	}
	if lack := Lacking(more, p.in.Used, p.in.Node); lack != nil {
		p.plan.ResizePending = &Waiting{Reason: v1.PodReasonDeferred, Message: lack.Message}
		return false
	}
	p.plan.do(Allocate{})
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
func (p *planner) resize(c *v1.Container, last pod.Container) {
	to := pod.ResourcesOf(p.in.Pod, c)
	if to == last.Resources {
		return
	}
	p.plan.resizing()
	if pod.NeedsRestart(c, last.Resources, to) {
		p.plan.do(Renew{ID: last.ID, Container: c.Name})
		return
	}
	if f, failed := p.in.Failures[FailureResize+c.Name]; failed {
		p.plan.Resizing = &Waiting{Reason: v1.PodReasonError, Message: f.Message}
		if left := retryDelay(f) - p.in.Now.Sub(f.At); left > 0 {
			p.plan.wakeIn(left)
			return
		}
	}
	p.plan.do(Resize{ID: last.ID, Container: c.Name, To: to})
}

// resizing records in the plan that something does not have the allocated resources yet.
func (p *Plan) resizing() {
	if p.Resizing == nil {
		p.Resizing = &Waiting{}
	}
}

// RenewFailed returns the failure that terminates an instance of the named container so that a new
// one gets other resources.
func RenewFailed(container string) *pod.Failed {
	return &pod.Failed{Why: fmt.Sprintf("Container %s resize requires restart", container), Resize: true}
}
