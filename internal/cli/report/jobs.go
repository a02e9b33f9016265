package report

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status/summary"
	"podrun.io/podrun/internal/workload/jobs"
)

// Job is a Job of a run. It has the results that its pods only contribute to.
type Job struct {
	// Job has the status.
	*batchv1.Job
	// Manifest is the path of its manifest.
	Manifest string
	// Pods are its pods, in the order of their creation.
	Pods []*v1.Pod
	// Stranded reports that the Job was not started because a pod has failed.
	Stranded bool
}

// ofJob reports that a pod belongs to a Job.
func (r Run) ofJob(p *v1.Pod) bool {
	return slices.ContainsFunc(r.Jobs, func(j Job) bool {
		return slices.ContainsFunc(j.Pods, func(q *v1.Pod) bool { return pod.KeyOf(q) == pod.KeyOf(p) })
	})
}

// indexed reports that each completion has an index, and so a case.
func (j Job) indexed() bool {
	return j.Spec.CompletionMode != nil && *j.Spec.CompletionMode == batchv1.IndexedCompletion
}

// maxIndexes is how many indexes of a Job have a case, the first ones: a manifest may have two billion.
const maxIndexes = 100_000

// jobCases returns the cases of a Job: one for each index or, if it has none, one.
func (r Run) jobCases(j Job) []junitCase {
	if !j.indexed() {
		end := jobs.Finished(&j.Status)
		return []junitCase{r.jobCase(j, try{name: j.Name, pods: j.Pods,
			succeeded: end != nil && end.Type == batchv1.JobComplete})}
	}
	done := jobs.Indexes(j.Status.CompletedIndexes)
	tries, failed := make([]try, min(int(*j.Spec.Completions), maxIndexes)), false
	for i := range tries {
		index := strconv.Itoa(i)
		pods := slices.DeleteFunc(slices.Clone(j.Pods), func(p *v1.Pod) bool {
			return p.Annotations[batchv1.JobCompletionIndexAnnotation] != index
		})
		tries[i] = try{name: index, pods: pods, succeeded: done[i]}
		failed = failed || tries[i].failed()
	}
	var cases []junitCase
	for _, t := range tries {
		// If none has failed, as after a deadline, those that were stopped are why the Job has.
		t.stopped = failed && !t.failed()
		cases = append(cases, r.jobCase(j, t))
	}
	return cases
}

// try is what a case of a Job is about: all of it, or an index.
type try struct {
	name string
	// pods are in the order of their creation.
	pods []*v1.Pod
	// stopped reports that it was stopped because another one failed, if the Job has failed.
	succeeded, stopped bool
}

// failed reports that the last pod has.
func (t try) failed() bool {
	return len(t.pods) > 0 && t.pods[len(t.pods)-1].Status.Phase == v1.PodFailed
}

// jobCase returns a case of a Job.
func (r Run) jobCase(j Job, t try) junitCase {
	c := junitCase{Name: t.name, ClassName: j.Namespace + "." + j.Name}
	c.Time = inSeconds(r.total(t.pods))
	end := jobs.Finished(&j.Status)
	text := r.lastOutput(t.pods)
	switch {
	case t.succeeded:
	case j.Stranded || len(t.pods) == 0 && end != nil:
		c.Skipped = &junitSkipped{Message: "never ran"}
	case end == nil:
		why := whyNotDone(r) + "not done: job " + jobs.State(&j.Status)
		c.Error = &junitMessage{Message: why, Type: "NotDone", Text: text}
	case end.Type == batchv1.JobComplete: // by its successPolicy
		c.Skipped = &junitSkipped{Message: "not needed: " + end.Message}
	case t.stopped:
		c.Skipped = &junitSkipped{Message: "stopped: " + end.Message}
	default:
		c.Failure = &junitMessage{Message: end.Message, Type: end.Reason, Text: text}
	}
	return c
}

// total returns how long pods have run together.
func (r Run) total(pods []*v1.Pod) (all time.Duration) {
	for _, p := range pods {
		all += r.Durations[pod.KeyOf(p)]
	}
	return all
}

// lastOutput returns how the containers of the newest pod ended, and the end of what they have written.
func (r Run) lastOutput(pods []*v1.Pod) string {
	if len(pods) == 0 {
		return ""
	}
	p := pods[len(pods)-1]
	text := lastExits(p)
	for _, role := range summary.InitialFirst(summary.Roles(p)) {
		if hasRun(role.Status) {
			text = r.withOutput(text, p, role)
		}
	}
	return text
}

// unfinishedJobs lists the Jobs that are not done and have no pods that say so.
func (r Run) unfinishedJobs() (names []string) {
	for _, j := range r.Jobs {
		if jobs.Finished(&j.Status) == nil && len(j.Pods) == 0 && !j.Stranded {
			names = append(names, fmt.Sprintf("job %s/%s %s", j.Namespace, j.Name, jobs.State(&j.Status)))
		}
	}
	return names
}
