package workload

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload/revisions"
)

// State is what is known of a workload that has no runs: the input of Summarize.
type State struct {
	// Object is the document, which asks for a number of pods, and Pods are those that exist.
	Object  runtime.Object
	Desired int
	Pods    []*v1.Pod
	// Hash identifies the document's template, and HashOf the one that a pod runs.
	Hash   string
	HashOf func(*v1.Pod) string
	// Seen is when the template was first read; zero: not known. Outcome is what is recorded of its revision; nil:
	// nothing.
	Seen    time.Time
	Outcome *revisions.Outcome
	Now     time.Time
}

// Summary counts the pods of a workload. Those of a DaemonSet are counted once a node, as in Kubernetes: it has one.
type Summary struct {
	// Desired is the number of pods that the document asks for, Current of those that exist.
	Desired, Current int32
	// Ready pods are ready, Available ones have been for minReadySeconds, Updated ones run the document's
	// template.
	Ready, Available, Updated int32
	// Terminating pods are being removed, and counted in none of the others.
	Terminating int32
	// Hash identifies the document's template. Former is another one that pods run, that of the first of them, and
	// OfFormer counts these; "" if there are none.
	Hash, Former string
	OfFormer     int32
	// Conditions are those of a Deployment.
	Conditions []appsv1.DeploymentCondition
}

// Summarize counts the pods of a workload.
func Summarize(s State) Summary {
	counts := Summary{Desired: int32(s.Desired), Hash: s.Hash, Former: former(s)}
	var pods []*v1.Pod
	for _, p := range s.Pods {
		if p.DeletionTimestamp != nil {
			counts.Terminating++
			continue
		}
		pods = append(pods, p)
	}
	if _, is := s.Object.(*appsv1.DaemonSet); is {
		counts.Desired = min(counts.Desired, 1)
		pods = counted(s, pods)
	}
	for _, p := range pods {
		counts.Current++
		switch hash := s.HashOf(p); hash {
		case s.Hash:
			counts.Updated++
		case counts.Former:
			counts.OfFormer++
		}
		if pod.IsReady(p) {
			counts.Ready++
		}
		if s.available(p) {
			counts.Available++
		}
	}
	if d, is := s.Object.(*appsv1.Deployment); is {
		counts.Conditions = conditions(d, s, counts)
	}
	return counts
}

// available reports that a pod has been ready for minReadySeconds.
func (s State) available(p *v1.Pod) bool {
	is, at := readiness(p)
	return is && s.Now.Sub(at) >= MinReady(s.Object)
}

// former returns the template of the first pod that does not run the document's: that of the last update that has
// ended, if another one has not. Pods that are terminating count too: their update goes on.
func former(s State) string {
	var first *v1.Pod
	for _, p := range s.Pods {
		if s.HashOf(p) == s.Hash {
			continue
		}
		// The names differ in their indexes only, so a longer one has a higher one.
		if first == nil || cmp.Or(cmp.Compare(len(p.Name), len(first.Name)), cmp.Compare(p.Name, first.Name)) < 0 {
			first = p
		}
	}
	if first == nil {
		return ""
	}
	return s.HashOf(first)
}

// counted returns the one of the pods of a DaemonSet that counts for the node: the oldest one, as in Kubernetes, of
// those that serve. In Kubernetes a pod that is replaced is gone then; here it begins anew beside the one that serves.
func counted(s State, pods []*v1.Pod) []*v1.Pod {
	if len(pods) == 0 {
		return nil
	}
	rank := func(p *v1.Pod) int {
		switch {
		case s.available(p):
			return 0
		case pod.IsReady(p):
			return 1
		}
		return 2
	}
	return []*v1.Pod{slices.MinFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), started(a).Compare(started(b)), cmp.Compare(a.Name, b.Name))
	})}
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

// Unavailable returns how many pods of a Deployment are not available: of those that it asks for or, if there are more,
// of all.
func (s Summary) Unavailable() int32 { return max(s.Desired, s.Current) - s.Available }

// CurrentRevision returns how many pods of a StatefulSet run the template of the last update that has ended, and which
// one that is. While pods of it are left that is not the document's.
func (s Summary) CurrentRevision() (pods int32, hash string) {
	if s.Former != "" {
		return s.OfFormer, s.Former
	}
	return s.Updated, s.Hash
}

// generation is that of all documents: edits of a manifest are not counted, and what is shown is the status of the
// document that is shown.
const generation = 1

// SetStatus sets the status of a workload that has its name.
func SetStatus(o runtime.Object, s Summary) {
	switch o := o.(type) {
	case *appsv1.Deployment:
		o.Generation = generation
		o.Status = appsv1.DeploymentStatus{
			ObservedGeneration: generation,
			Replicas:           s.Current, UpdatedReplicas: s.Updated, ReadyReplicas: s.Ready,
			AvailableReplicas: s.Available, UnavailableReplicas: s.Unavailable(),
			TerminatingReplicas: new(s.Terminating),
			Conditions:          s.Conditions,
		}
	case *appsv1.ReplicaSet:
		o.Generation = generation
		o.Status = appsv1.ReplicaSetStatus{
			ObservedGeneration: generation,
			Replicas:           s.Current, FullyLabeledReplicas: s.Current,
			ReadyReplicas: s.Ready, AvailableReplicas: s.Available,
		}
	case *appsv1.StatefulSet:
		current, hash := s.CurrentRevision()
		name := func(hash string) string { return o.Name + "-" + revisions.Short(hash) }
		o.Generation = generation
		o.Status = appsv1.StatefulSetStatus{
			ObservedGeneration: generation,
			Replicas:           s.Current, ReadyReplicas: s.Ready, AvailableReplicas: s.Available,
			CurrentReplicas: current, UpdatedReplicas: s.Updated,
			CurrentRevision: name(hash), UpdateRevision: name(s.Hash),
		}
	case *appsv1.DaemonSet:
		o.Generation = generation
		o.Status = appsv1.DaemonSetStatus{
			ObservedGeneration:     generation,
			DesiredNumberScheduled: s.Desired, CurrentNumberScheduled: s.Current, NumberReady: s.Ready,
			UpdatedNumberScheduled: s.Updated, NumberAvailable: s.Available,
			NumberUnavailable: max(s.Desired-s.Available, 0),
		}
	}
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
