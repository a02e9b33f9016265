package pod

import v1 "k8s.io/api/core/v1"

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
