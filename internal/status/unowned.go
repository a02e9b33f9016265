package status

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ReasonUnowned is the status reason of a pod that no process manages: its current state is
// unknown.
const ReasonUnowned = "Unowned"

// IsUnowned reports whether the pod's status says that no process manages it.
func IsUnowned(p *v1.Pod) bool { return p.Status.Reason == ReasonUnowned }

// SetUnowned sets the status of a pod that no process manages and whose state was last known at
// that time, as the node controller does for the pods of a lost node: the phase stays, readiness
// becomes unknown. A pod that has finished stays as it is.
func SetUnowned(p *v1.Pod, at time.Time) {
	if Ended(p) {
		return
	}
	message := "no process keeps the pod; this is how it was at " + at.Local().Format(time.DateTime)
	p.Status.Reason, p.Status.Message = ReasonUnowned, message
	for _, all := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range all {
			all[i].Ready = all[i].Ready && all[i].State.Running == nil
		}
	}
	for _, kind := range []v1.PodConditionType{v1.PodReady, v1.ContainersReady} {
		c := v1.PodCondition{
			Type: kind, Status: v1.ConditionUnknown, LastTransitionTime: metav1.Time{Time: at.Truncate(time.Second)},
			Reason: ReasonUnowned, Message: message,
		}
		same := func(c v1.PodCondition) bool { return c.Type == kind }
		if i := slices.IndexFunc(p.Status.Conditions, same); i >= 0 {
			p.Status.Conditions[i] = c
		} else {
			p.Status.Conditions = append(p.Status.Conditions, c)
		}
	}
}

// UnownedSince returns the time that was given to SetUnowned for the pod.
func UnownedSince(p *v1.Pod) time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// Ended reports whether the pod has finished, so that no process needs to manage it.
func Ended(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
}
