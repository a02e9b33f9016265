package jobs

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
)

// State returns the cell STATUS of kubectl get jobs.
func State(s *batchv1.JobStatus) string {
	for _, kind := range []batchv1.JobConditionType{
		batchv1.JobComplete, batchv1.JobFailed, batchv1.JobSuspended, batchv1.JobFailureTarget,
		batchv1.JobSuccessCriteriaMet,
	} {
		if c := condition(s, kind); c != nil && c.Status == v1.ConditionTrue {
			return string(kind)
		}
	}
	return "Running"
}

// Completions returns the cell COMPLETIONS of kubectl get jobs.
func Completions(job *batchv1.Job) string {
	switch s := job.Spec; {
	case s.Completions != nil:
		return fmt.Sprintf("%d/%d", job.Status.Succeeded, *s.Completions)
	case s.Parallelism != nil && *s.Parallelism > 1:
		return fmt.Sprintf("%d/1 of %d", job.Status.Succeeded, *s.Parallelism)
	}
	return fmt.Sprintf("%d/1", job.Status.Succeeded)
}

// Duration returns for how long a Job has run, or ran until it was complete or had failed; false if it has not started.
// kubectl counts on after a failure, which says nothing about the Job.
func Duration(s *batchv1.JobStatus, now time.Time) (time.Duration, bool) {
	switch {
	case s.StartTime == nil:
		return 0, false
	case s.CompletionTime != nil:
		return s.CompletionTime.Sub(s.StartTime.Time), true
	}
	if end := Finished(s); end != nil && !end.LastTransitionTime.Before(s.StartTime) {
		now = end.LastTransitionTime.Time
	}
	return now.Sub(s.StartTime.Time), true
}

// CellsOfPods returns the state of a Job, and how many of its completions there are, as its pods alone show them: they
// do not say how many there must be, nor whether others would follow those that have ended.
func CellsOfPods(s *batchv1.JobStatus) (state, completions string) {
	state = State(s)
	if s.Active == 0 {
		state = "<unknown>"
	}
	return state, fmt.Sprintf("%d/<unknown>", s.Succeeded)
}
