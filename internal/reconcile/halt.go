package reconcile

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/plan"
)

// The priorities of Kubernetes' system-cluster-critical and system-node-critical classes.
const (
	CriticalPriority     = 2_000_000_000
	nodeCriticalPriority = CriticalPriority + 1000
)

// Priority returns the pod's priority for the order of termination at a shutdown of the machine.
func Priority(p *v1.Pod) int64 {
	switch {
	case p.Spec.Priority != nil:
		return int64(*p.Spec.Priority)
	case p.Spec.PriorityClassName == "system-cluster-critical":
		return CriticalPriority
	case p.Spec.PriorityClassName == "system-node-critical":
		return nodeCriticalPriority
	}
	return 0
}

// halted adds a shutdown of the machine to the planner's input. A pod that is not desired any more
// is terminated with the priority of its last manifest.
func (w *worker) halted(in plan.Input) plan.Input {
	h := w.shared.halt.Load()
	if h == nil {
		return in
	}
	p := w.state.pod
	if p == nil {
		p = w.manifests.running(nil, in.Observed)
	}
	if p == nil {
		p = &v1.Pod{} // its manifest is not known
	}
	if Priority(p) >= h.Below {
		return in
	}
	in.Halted = true
	if in.MaxGrace == nil || h.Grace < *in.MaxGrace {
		in.MaxGrace = new(time.Duration)
		*in.MaxGrace = h.Grace
	}
	return in
}
