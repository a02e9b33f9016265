package defaults

import (
	"math"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
)

// CronJob sets the fields of a CronJob, but for the template of its pods, that a manifest omits.
func CronJob(c *batchv1.CronJob) {
	orElse(&c.Namespace, v1.NamespaceDefault)
	orElse(&c.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
	orElseNew(&c.Spec.Suspend, false)
	orElseNew(&c.Spec.SuccessfulJobsHistoryLimit, 3)
	orElseNew(&c.Spec.FailedJobsHistoryLimit, 1)
	jobSpec(&c.Spec.JobTemplate.Spec)
}

// Job sets the fields of a Job, but for its template, that a manifest omits.
func Job(j *batchv1.Job) {
	orElse(&j.Namespace, v1.NamespaceDefault)
	jobSpec(&j.Spec)
}

func jobSpec(s *batchv1.JobSpec) {
	if s.Completions == nil && s.Parallelism == nil {
		orElseNew(&s.Completions, 1)
	}
	orElseNew(&s.Parallelism, 1)
	if s.BackoffLimitPerIndex != nil {
		orElseNew(&s.BackoffLimit, math.MaxInt32)
	}
	orElseNew(&s.BackoffLimit, 6)
	orElseNew(&s.CompletionMode, batchv1.NonIndexedCompletion)
	orElseNew(&s.Suspend, false)
	replace := batchv1.TerminatingOrFailed
	if s.PodFailurePolicy != nil {
		replace = batchv1.Failed
		for i := range s.PodFailurePolicy.Rules {
			conditions := s.PodFailurePolicy.Rules[i].OnPodConditions
			for j := range conditions {
				orElse(&conditions[j].Status, v1.ConditionTrue)
			}
		}
	}
	orElseNew(&s.PodReplacementPolicy, replace)
}
