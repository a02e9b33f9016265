package defaults

import (
	"math"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
)

// Job sets the fields of a Job, but for its template, that a manifest omits.
func Job(j *batchv1.Job) {
	orElse(&j.Namespace, v1.NamespaceDefault)
	s := &j.Spec
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
