package plan

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// A change of CPU and memory has two steps, as by the kubelet: first the pod is given them, if the machine has
// what is asked for beside what the other pods have been given; until then the pod stays as it is. Then what
// runs is brought to it, in place or, where the resizePolicy says so, by a new instance.

// FailureResize before a container's name is the key of a failure to give it other resources.
const FailureResize = "resize "

// FailureSandbox before a sandbox's ID is the key of a failure to remove it.
const FailureSandbox = "sandbox "

// allocate plans for the pod to be given what its manifest says, and reports whether it is. Unlike the kubelet
// it calls infeasible what the machine does not have at all: it will not come by waiting.
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

// Growth is what a pod with the size of to requests of which one with the size of from requests less. What
// gets less never waits.
func Growth(from, to *v1.Pod) v1.ResourceList {
	more, had := v1.ResourceList{}, Requests(from)
	for name, quantity := range Requests(to) {
		if quantity.Cmp(had[name]) > 0 {
			more[name] = quantity
		}
	}
	return more
}

// resize plans for the CPU and memory of a running instance, if they are not what it has been given.
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

// resizing notes that something has not got yet what the pod has been given.
func (j *judge) resizing() {
	if j.plan.Resizing == nil {
		j.plan.Resizing = &Waiting{}
	}
}

// RenewFailed is why an instance that is renewed has to end.
func RenewFailed(container string) *pod.Failed {
	return &pod.Failed{Why: fmt.Sprintf("Container %s resize requires restart", container), Resize: true}
}
