package workload

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"podrun.io/podrun/internal/workload/rollouts"
)

// Summary counts the pods of a workload.
type Summary struct {
	// Desired is the number of pods that the document asks for, Current of those that exist.
	Desired, Current int32
	// Ready pods are ready, Available ones have been for minReadySeconds, Updated ones run the document's
	// template.
	Ready, Available, Updated int32
	// Terminating pods are being removed, and counted in none of the others.
	Terminating int32
}

// Summarize counts the pods of a workload. updated reports that a pod runs the document's template.
func Summarize(o runtime.Object, desired int, pods []*v1.Pod, updated func(*v1.Pod) bool, now time.Time) Summary {
	s := Summary{Desired: int32(desired)}
	settled := MinReady(o)
	for _, p := range pods {
		if p.DeletionTimestamp != nil {
			s.Terminating++
			continue
		}
		s.Current++
		if updated(p) {
			s.Updated++
		}
		i := slices.IndexFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
		})
		if i < 0 {
			continue
		}
		s.Ready++
		if now.Sub(p.Status.Conditions[i].LastTransitionTime.Time) >= settled {
			s.Available++
		}
	}
	return s
}

// MinReady returns the minReadySeconds of a workload.
func MinReady(o runtime.Object) time.Duration {
	var seconds int32
	switch o := o.(type) {
	case *appsv1.Deployment:
		seconds = o.Spec.MinReadySeconds
	case *appsv1.ReplicaSet:
		seconds = o.Spec.MinReadySeconds
	case *appsv1.StatefulSet:
		seconds = o.Spec.MinReadySeconds
	case *appsv1.DaemonSet:
		seconds = o.Spec.MinReadySeconds
	}
	return time.Duration(seconds) * time.Second
}

// SetStatus sets the status of a workload.
func SetStatus(o runtime.Object, s Summary) {
	switch o := o.(type) {
	case *appsv1.Deployment:
		o.Status = appsv1.DeploymentStatus{
			Replicas: s.Current, UpdatedReplicas: s.Updated, ReadyReplicas: s.Ready,
			AvailableReplicas: s.Available, UnavailableReplicas: max(s.Desired, s.Current) - s.Available,
			TerminatingReplicas: new(s.Terminating),
			Conditions:          []appsv1.DeploymentCondition{Available(o, s)},
		}
	case *appsv1.ReplicaSet:
		o.Status = appsv1.ReplicaSetStatus{
			Replicas: s.Current, FullyLabeledReplicas: s.Current,
			ReadyReplicas: s.Ready, AvailableReplicas: s.Available,
		}
	case *appsv1.StatefulSet:
		o.Status = appsv1.StatefulSetStatus{
			Replicas: s.Current, ReadyReplicas: s.Ready, AvailableReplicas: s.Available,
			CurrentReplicas: s.Updated, UpdatedReplicas: s.Updated,
		}
	case *appsv1.DaemonSet:
		o.Status = appsv1.DaemonSetStatus{
			DesiredNumberScheduled: s.Desired, CurrentNumberScheduled: s.Current, NumberReady: s.Ready,
			UpdatedNumberScheduled: s.Updated, NumberAvailable: s.Available,
			NumberUnavailable: max(s.Desired-s.Available, 0),
		}
	}
}

// Available returns the condition Available of a Deployment.
func Available(d *appsv1.Deployment, s Summary) appsv1.DeploymentCondition {
	unavailable := 0
	if rolling := d.Spec.Strategy.RollingUpdate; rolling != nil && rolling.MaxUnavailable != nil {
		unavailable = rollouts.Scaled(rolling.MaxSurge, rolling.MaxUnavailable, int(s.Desired), 0).Unavailable
	}
	least := s.Desired - int32(unavailable)
	c := appsv1.DeploymentCondition{
		Type: appsv1.DeploymentAvailable, Status: v1.ConditionTrue, Reason: "MinimumReplicasAvailable",
		Message: "Deployment has minimum availability.", LastUpdateTime: metav1.Time{}, LastTransitionTime: metav1.Time{},
	}
	if s.Available < least {
		c.Status, c.Reason = v1.ConditionFalse, "MinimumReplicasUnavailable"
		c.Message = fmt.Sprintf("Deployment does not have minimum availability: %d of %d pods are available.",
			s.Available, s.Desired)
	}
	return c
}

// Row returns the cells of a workload in the table of its kind.
func (s Summary) Row(kind Kind) []string {
	number := func(n int32) string { return fmt.Sprint(n) }
	ready := fmt.Sprintf("%d/%d", s.Ready, s.Desired)
	switch kind {
	case Deployment:
		return []string{ready, number(s.Updated), number(s.Available)}
	case StatefulSet:
		return []string{ready}
	case DaemonSet:
		return []string{
			number(s.Desired), number(s.Current), number(s.Ready), number(s.Updated), number(s.Available),
		}
	default:
		return []string{number(s.Desired), number(s.Current), number(s.Ready)}
	}
}

// Header returns the headers of the cells of Row.
func Header(kind Kind) []string {
	switch kind {
	case Deployment:
		return []string{"READY", "UP-TO-DATE", "AVAILABLE"}
	case StatefulSet:
		return []string{"READY"}
	case Job:
		return []string{"STATUS", "COMPLETIONS", "DURATION"}
	case CronJob:
		return []string{"SCHEDULE", "TIMEZONE", "SUSPEND", "ACTIVE", "LAST SCHEDULE"}
	case DaemonSet:
		return []string{"DESIRED", "CURRENT", "READY", "UP-TO-DATE", "AVAILABLE"}
	default:
		return []string{"DESIRED", "CURRENT", "READY"}
	}
}
