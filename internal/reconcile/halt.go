package reconcile

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/plan"
)

// The priorities of Kubernetes' own classes.
const (
	CriticalPriority     = 2_000_000_000
	nodeCriticalPriority = CriticalPriority + 1000
)

// Priority is the pod's among those that end when the machine shuts down.
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

// halted puts into in what a shutdown of the machine means for the pod. One that is not wanted any more ends with
// those of the priority that it has had.
func (w *worker) halted(in plan.Input) plan.Input {
	if w.halt == nil {
		return in
	}
	h := w.halt.Load()
	if h == nil {
		return in
	}
	p := w.pod
	if p == nil {
		p = w.running(in.Observed)
	}
	if p == nil {
		p = &v1.Pod{} // nothing is known of it
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
