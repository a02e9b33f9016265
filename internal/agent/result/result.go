package result

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// Result is the outcome of a run of once.
type Result struct {
	// Pods are sorted by namespace and name, with their last status.
	Pods []*v1.Pod
	// TimedOut and Interrupted report what ended the wait before every pod was done. Interrupted is
	// also set by an interrupt while the result is shown or while Once cleans up.
	TimedOut, Interrupted bool
	// Durations is how long each pod took: from its start in this run until it had its result or, if it
	// has none, until the wait ended.
	Durations map[pod.Key]time.Duration
	// Stops are the pods that are stopped and removed at the end.
	Stops map[pod.Key]bool
	// Removed reports that no pod of the run exists any more.
	Removed bool
	// Left are the pods that could not be cleaned up completely.
	Left []Left
	// Settling is how long the run went on after all pods were done, because actions were left for
	// them. Unsettled reports that some were still left when the run stopped waiting for them.
	Settling  time.Duration
	Unsettled bool
}

// Left is a pod that could not be cleaned up in time.
type Left struct {
	Key pod.Key
	// Why is the last error; nil if there was none.
	Why error
}

// done reports that every pod is done, or never will be because another pod has failed.
func (r Result) done() bool {
	stranded := r.Stranded()
	return !slices.ContainsFunc(r.Pods, func(p *v1.Pod) bool { return !Done(p) && !stranded[pod.KeyOf(p)] })
}

// Stopped reports that an interrupt terminates the pods. An interrupt after all pods have their
// results only ends a wait.
func (r Result) Stopped() bool { return r.Interrupted && !r.done() }

// Failed reports that a pod failed.
func (r Result) Failed() bool {
	return slices.ContainsFunc(r.Pods, func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
}

// Stranded returns the pods that were not started because a pod that they start after has failed,
// or was not started either.
func (r Result) Stranded() map[pod.Key]bool {
	lost, stranded := map[pod.Key]bool{}, map[pod.Key]bool{}
	for _, p := range r.Pods {
		lost[pod.KeyOf(p)] = p.Status.Phase == v1.PodFailed
	}
	for again := true; again; {
		again = false
		for _, p := range r.Pods {
			key := pod.KeyOf(p)
			waits := p.Status.Reason == plan.ReasonWaitingForPods && !lost[key]
			if waits && slices.ContainsFunc(pod.After(p), func(k pod.Key) bool { return lost[k] }) {
				lost[key], stranded[key], again = true, true, true
			}
		}
	}
	return stranded
}

// Ends sets Stops to the pods that do not stay, and returns the longest grace period of those that run.
func (r *Result) Ends(keep manifest.Desired) (grace time.Duration) {
	r.Stops = map[pod.Key]bool{}
	for _, p := range r.Pods {
		if key := pod.KeyOf(p); keep.Pods[key] == nil {
			r.Stops[key] = true
			grace = max(grace, graceOf(p))
		}
	}
	return grace
}

// Kept returns the desired set that stays after a run of want: all pods, unless remove is set, the run was
// interrupted, or pods were not done in time.
func (r Result) Kept(want manifest.Desired, remove bool) manifest.Desired {
	// Keep the objects: the volumes of the pods that stay show them.
	d := manifest.Desired{Pods: map[pod.Key]*v1.Pod{}, Objects: want.Objects, Complete: true}
	if remove || r.Stopped() {
		return d
	}
	stranded := r.Stranded()
	for _, p := range r.Pods {
		if key := pod.KeyOf(p); !stranded[key] && (!r.TimedOut || Done(p)) {
			d.Pods[key] = want.Pods[key]
		}
	}
	return d
}

// Done reports that the result of a pod is known, good or bad: it has failed or, as pod.Arrived
// says, it has succeeded or is ready.
func Done(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodFailed || pod.Arrived(p)
}

// graceOf returns how long a pod may take to terminate; 0 if it has reached a final phase and none of
// its containers runs.
func graceOf(p *v1.Pod) time.Duration {
	over := p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
	all := slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
	if over && !slices.ContainsFunc(all, func(s v1.ContainerStatus) bool { return s.State.Running != nil }) {
		return 0
	}
	seconds := int64(v1.DefaultTerminationGracePeriodSeconds)
	if given := p.Spec.TerminationGracePeriodSeconds; given != nil {
		seconds = *given
	}
	return time.Duration(seconds) * time.Second
}
