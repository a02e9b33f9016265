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

// jobCases returns the cases of a Job: one for each index or, if it has none, one.
func (r Run) jobCases(j Job) []junitCase {
	if !j.indexed() {
		end := jobs.Finished(&j.Status)
		return []junitCase{r.jobCase(j, j.Name, j.Pods, end != nil && end.Type == batchv1.JobComplete)}
	}
	done := jobs.Indexes(j.Status.CompletedIndexes)
	var cases []junitCase
	for i := range int(*j.Spec.Completions) {
		index := strconv.Itoa(i)
		pods := slices.DeleteFunc(slices.Clone(j.Pods), func(p *v1.Pod) bool {
			return p.Annotations[batchv1.JobCompletionIndexAnnotation] != index
		})
		cases = append(cases, r.jobCase(j, index, pods, done[i]))
	}
	return cases
}

// jobCase returns a case of a Job, which has these pods.
func (r Run) jobCase(j Job, name string, pods []*v1.Pod, succeeded bool) junitCase {
	c := junitCase{Name: name, ClassName: j.Namespace + "." + j.Name}
	c.Time = inSeconds(r.total(pods))
	end := jobs.Finished(&j.Status)
	text := r.lastOutput(pods)
	switch {
	case succeeded:
	case j.Stranded || len(pods) == 0 && end != nil:
		c.Skipped = &junitSkipped{Message: "never ran"}
	case end == nil:
		why := whyNotDone(r) + "not done: job " + jobs.State(&j.Status)
		c.Error = &junitMessage{Message: why, Type: "NotDone", Text: text}
	case end.Type == batchv1.JobComplete: // by its successPolicy
		c.Skipped = &junitSkipped{Message: "not needed: " + end.Message}
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
