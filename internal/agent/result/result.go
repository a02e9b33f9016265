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
	// Jobs are the Jobs. What becomes of a Job's pods matters only to the Job.
	Jobs []Job
	// TimedOut and Interrupted report what ended the wait before every pod was done. Interrupted is
	// also set by an interrupt while the result is shown or while Once cleans up.
	TimedOut, Interrupted bool
	// Unstable are the services that are ready, but not for long enough to have their result.
	Unstable map[pod.Key]bool
	// CrashLooping are the services that have failed: they wait to be restarted, and nothing else of
	// the run is in progress.
	CrashLooping map[pod.Key]bool
	// Stuck says of pods that can never start why. One ends the run.
	Stuck map[pod.Key]error
	// Durations is how long each pod took: from its start in this run until it had its result or, if it
	// has none, until the wait ended.
	Durations map[pod.Key]time.Duration
	// Runs is how long each container of a pod took, by name. Those that never ran are not in it.
	Runs map[pod.Key]map[string]time.Duration
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
	return r.jobsDone(stranded) &&
		!slices.ContainsFunc(r.Pods, func(p *v1.Pod) bool { return !r.Done(p) && !stranded[pod.KeyOf(p)] })
}

// Stopped reports that an interrupt terminates the pods. An interrupt after all pods have their
// results only ends a wait.
func (r Result) Stopped() bool { return r.Interrupted && !r.done() }

// Failed reports that a pod or a Job failed.
func (r Result) Failed() bool {
	return slices.ContainsFunc(r.Pods, r.failed) ||
		slices.ContainsFunc(r.Jobs, func(j Job) bool { return j.Failed() != nil })
}

func (r Result) failed(p *v1.Pod) bool {
	_, ofJob := r.JobOf(p)
	return p.Status.Phase == v1.PodFailed && !ofJob || r.Problem(p) != ""
}

// Problem returns why a pod has failed where its phase does not say so; "" if it has not.
func (r Result) Problem(p *v1.Pod) string {
	key := pod.KeyOf(p)
	switch why := r.Stuck[key]; {
	case why != nil:
		return "cannot start: " + why.Error()
	case r.CrashLooping[key]:
		return "crashes again and again"
	}
	return ""
}

// Done reports that the result of a pod of this run is known, good or bad. A service has to be ready
// for some time to have a good one.
func (r Result) Done(p *v1.Pod) bool {
	if j, is := r.JobOf(p); is {
		return r.Problem(p) != "" || j.Finished()
	}
	return r.Problem(p) != "" || Done(p) && !r.Unstable[pod.KeyOf(p)]
}

// Stranded returns the pods that were not started because a pod that they start after has failed,
// or was not started either.
func (r Result) Stranded() map[pod.Key]bool {
	lost, stranded := map[pod.Key]bool{}, map[pod.Key]bool{}
	for _, p := range r.Pods {
		lost[pod.KeyOf(p)] = r.failed(p)
	}
	for _, j := range r.Jobs {
		lost[j.At] = j.Failed() != nil
	}
	for again := true; again; {
		again = false
		for _, p := range r.Pods {
			key := pod.KeyOf(p)
			waits := p.Status.Reason == plan.ReasonWaitingForPods && !lost[key]
			if waits && slices.ContainsFunc(pod.After(p), func(k pod.Key) bool { return lost[k] }) {
				lost[key], stranded[key], again = true, true, true
				if j, is := r.JobOf(p); is && !j.Finished() {
					lost[j.At], stranded[j.At] = true, true
				}
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

// Unfinished returns the pods that are removed without a result.
func (r Result) Unfinished() (out []*v1.Pod) {
	for _, p := range r.Pods {
		if r.Stops[pod.KeyOf(p)] && !r.Done(p) {
			out = append(out, p)
		}
	}
	return out
}

// Kept returns the desired set that stays after a run of want: no pods if remove is set or the run was
// interrupted, otherwise those that have a result.
func (r Result) Kept(want manifest.Desired, remove bool) manifest.Desired {
	// Keep the objects: the volumes of the pods that stay show them.
	d := manifest.Desired{Pods: map[pod.Key]*v1.Pod{}, Objects: want.Objects, Complete: true}
	if remove || r.Stopped() {
		return d
	}
	for _, p := range r.Pods {
		if key := pod.KeyOf(p); r.Done(p) && r.Stuck[key] == nil && want.Pods[key] != nil {
			d.Pods[key] = want.Pods[key]
		}
	}
	return d
}

// findCrashLoops sets CrashLooping to those of the services in back-off that have failed: all, if nothing
// else of the run is in progress.
func (r *Result) findCrashLoops(inBackOff map[pod.Key]bool) {
	statuses, crashing := map[pod.Key]*v1.Pod{}, map[pod.Key]bool{}
	for _, p := range r.Pods {
		statuses[pod.KeyOf(p)] = p
	}
	for _, p := range r.Pods {
		switch key := pod.KeyOf(p); {
		case r.Done(p):
		case inBackOff[key]:
			crashing[key] = true
		case !waitsFor(p, statuses):
			return
		}
	}
	for _, j := range r.Jobs {
		waits := slices.ContainsFunc(r.Pods, func(p *v1.Pod) bool {
			of, is := r.JobOf(p)
			return is && of.ID == j.ID && waitsFor(p, statuses)
		})
		if !j.Finished() && !waits {
			return // it is in progress, be it that it waits for another try
		}
	}
	r.CrashLooping = crashing
}

// waitsFor reports that p waits for one of the pods to have a good result.
func waitsFor(p *v1.Pod, pods map[pod.Key]*v1.Pod) bool {
	return p.Status.Reason == plan.ReasonWaitingForPods &&
		slices.ContainsFunc(pod.After(p), func(k pod.Key) bool { return pods[k] != nil && !pod.Arrived(pods[k]) })
}

func isService(p *v1.Pod) bool { return p.Spec.RestartPolicy == v1.RestartPolicyAlways }

// inBackOff reports that a container of p waits to be restarted after it has failed.
func inBackOff(p *v1.Pod) bool {
	return slices.ContainsFunc(statuses(p), func(s v1.ContainerStatus) bool {
		return s.State.Waiting != nil && s.State.Waiting.Reason == plan.ReasonCrashLoopBackOff
	})
}

func statuses(p *v1.Pod) []v1.ContainerStatus {
	return slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
}

// Done reports that the status of a pod has a result, good or bad: it has failed or, as pod.Arrived
// says, it has succeeded or is ready.
func Done(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodFailed || pod.Arrived(p)
}

// graceOf returns how long a pod may take to terminate; 0 if it has reached a final phase and none of
// its containers runs.
func graceOf(p *v1.Pod) time.Duration {
	over := p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
	if over && !slices.ContainsFunc(statuses(p), func(s v1.ContainerStatus) bool { return s.State.Running != nil }) {
		return 0
	}
	seconds := int64(v1.DefaultTerminationGracePeriodSeconds)
	if given := p.Spec.TerminationGracePeriodSeconds; given != nil {
		seconds = *given
	}
	return pod.Seconds(seconds)
}
