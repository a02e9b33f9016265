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
	return p.Spec.RestartPolicy == v1.RestartPolicyAlways &&
		slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
		})
}
