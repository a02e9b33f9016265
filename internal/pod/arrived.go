package pod

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Arrived reports that a pod has reached a good result, for which the pods after it wait: it has
// succeeded or, with restartPolicy Always, it is ready.
func Arrived(p *v1.Pod) bool {
	if p.Status.Phase == v1.PodSucceeded {
		return true
	}
	return p.Spec.RestartPolicy == v1.RestartPolicyAlways && IsReady(p)
}

// IsReady reports that the status of a pod says that it is ready.
func IsReady(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	})
}

// Restarts returns how often the containers of a pod were restarted, by its status.
func Restarts(p *v1.Pod) (n int32) {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		n += s.RestartCount
	}
	return n
}
