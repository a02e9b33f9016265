package jobs

import (
	"fmt"
	"math"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/pod"
)

// Finished returns the condition Complete or Failed of a Job; nil if it has not finished.
func Finished(s *batchv1.JobStatus) *batchv1.JobCondition {
	for _, kind := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed} {
		if c := condition(s, kind); c != nil && c.Status == v1.ConditionTrue {
			return c
		}
	}
	return nil
}

// Complete reports that the Job is complete.
func (h *History) Complete() bool {
	c := Finished(&h.Status)
	return c != nil && c.Type == batchv1.JobComplete
}

func condition(s *batchv1.JobStatus, kind batchv1.JobConditionType) *batchv1.JobCondition {
	i := slices.IndexFunc(s.Conditions, func(c batchv1.JobCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &s.Conditions[i]
}

// set sets a condition of the status.
func (d *decision) set(kind batchv1.JobConditionType, is v1.ConditionStatus, reason, message string) {
	now := metav1.Time{Time: d.Now}
	c := condition(&d.h.Status, kind)
	if c == nil {
		d.h.Status.Conditions = append(d.h.Status.Conditions, batchv1.JobCondition{Type: kind})
		c = &d.h.Status.Conditions[len(d.h.Status.Conditions)-1]
	}
	if c.Status == is && c.Reason == reason && c.Message == message {
		return
	}
	if c.Status != is {
		c.LastTransitionTime = now
	}
	c.Status, c.Reason, c.Message, c.LastProbeTime = is, reason, message, now
}

// target returns the condition FailureTarget or SuccessCriteriaMet, which says how the Job will finish when
// its pods are gone; nil if that is not known.
func (d *decision) target() *batchv1.JobCondition {
	for _, kind := range []batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet} {
		if c := condition(&d.h.Status, kind); c != nil {
			return c
		}
	}
	return nil
}

// aim decides how the Job will finish, unless that is decided.
func (d *decision) aim(kind batchv1.JobConditionType, reason, message string) {
	if d.target() == nil {
		d.set(kind, v1.ConditionTrue, reason, message)
	}
}

// deadline returns when activeDeadlineSeconds ends. The Job has it and has started.
func (d *decision) deadline() time.Time {
	seconds := min(*d.Job.Spec.ActiveDeadlineSeconds, int64(math.MaxInt64/time.Second)) // more is as good as none
	return d.h.Status.StartTime.Add(time.Duration(seconds) * time.Second)
}

// judge decides whether the Job has failed or succeeded, in the order of Kubernetes' syncJob.
func (d *decision) judge() {
	s, job := &d.h.Status, &d.Job.Spec
	suspended := job.Suspend != nil && *job.Suspend
	if s.StartTime == nil && !suspended && d.target() == nil {
		s.StartTime = &metav1.Time{Time: d.Now}
	}
	fail := func(reason, message string) { d.aim(batchv1.JobFailureTarget, reason, message) }
	if s.Failed > *job.BackoffLimit || d.restartedTooOften() {
		fail(batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit")
	}
	if job.ActiveDeadlineSeconds != nil && s.StartTime != nil && !suspended {
		if at := d.deadline(); !at.After(d.Now) {
			fail(batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline")
		} else {
			d.wakeAt(at)
		}
	}
	if d.indexed() && job.BackoffLimitPerIndex != nil {
		switch n := len(d.failed); {
		case job.MaxFailedIndexes != nil && n > int(*job.MaxFailedIndexes):
			fail(batchv1.JobReasonMaxFailedIndexesExceeded,
				"Job has exceeded the specified maximal number of failed indexes")
		case n > 0 && n+len(d.done) >= int(*job.Completions):
			fail(batchv1.JobReasonFailedIndexes, "Job has failed indexes")
		}
	}
	if rule, met := d.successRule(); met {
		d.aim(batchv1.JobSuccessCriteriaMet, batchv1.JobReasonSuccessPolicy,
			fmt.Sprintf("Matched rules at index %d", rule))
	}
	complete := s.Succeeded > 0 && d.actives() == 0
	if job.Completions != nil {
		complete = d.succeeded() >= int(*job.Completions)
	}
	if complete {
		d.aim(batchv1.JobSuccessCriteriaMet, batchv1.JobReasonCompletionsReached,
			"Reached expected number of succeeded pods")
	}
}

// restartedTooOften reports that the containers of pods that are restarted in place have used up the
// backoffLimit, as Kubernetes' pastBackoffLimitOnFailure does.
func (d *decision) restartedTooOften() bool {
	if d.Job.Spec.Template.Spec.RestartPolicy != v1.RestartPolicyOnFailure {
		return false
	}
	restarts := int32(0)
	for _, t := range d.h.Tries {
		o, _ := d.pod(t.Name)
		if !t.active() || o.Pod == nil {
			continue
		}
		restarts += pod.Restarts(o.Pod)
	}
	return restarts > 0 && restarts >= *d.Job.Spec.BackoffLimit
}

// successRule returns the index of the rule of the successPolicy that the Job meets.
func (d *decision) successRule() (index int, met bool) {
	if d.Job.Spec.SuccessPolicy == nil || !d.indexed() {
		return 0, false
	}
	for i, rule := range d.Job.Spec.SuccessPolicy.Rules {
		count, needed := len(d.done), 0
		if rule.SucceededIndexes != nil {
			of := spans(*rule.SucceededIndexes)
			count, needed = d.done.in(of), size(of)
		}
		if rule.SucceededCount != nil {
			needed = int(*rule.SucceededCount)
		}
		if count >= needed && needed > 0 {
			return i, true
		}
	}
	return 0, false
}

// failureAction returns what the podFailurePolicy says of a pod that has failed, and the message of FailJob; "" if
// it says nothing.
func (d *decision) failureAction(p *v1.Pod) (batchv1.PodFailurePolicyAction, string) {
	if d.Job.Spec.PodFailurePolicy == nil {
		return "", ""
	}
	for i, rule := range d.Job.Spec.PodFailurePolicy.Rules {
		if rule.Action == batchv1.PodFailurePolicyActionFailIndex && d.Job.Spec.BackoffLimitPerIndex == nil {
			continue
		}
		if exit := rule.OnExitCodes; exit != nil {
			for _, s := range slices.Concat(p.Status.ContainerStatuses, p.Status.InitContainerStatuses) {
				if code, is := matches(exit, s); is {
					return rule.Action, fmt.Sprintf("Container %s for pod %s/%s failed with exit code %d matching %s rule "+
						"at index %d", s.Name, p.Namespace, p.Name, code, rule.Action, i)
				}
			}
			continue
		}
		for _, c := range rule.OnPodConditions {
			if hasCondition(p, c) {
				return rule.Action, fmt.Sprintf("Pod %s/%s has condition %s matching %s rule at index %d",
					p.Namespace, p.Name, c.Type, rule.Action, i)
			}
		}
	}
	return "", ""
}

// matches reports whether a container has failed with one of the exit codes.
func matches(rule *batchv1.PodFailurePolicyOnExitCodesRequirement, s v1.ContainerStatus) (code int32, is bool) {
	t := s.State.Terminated
	if t == nil || t.ExitCode == 0 || rule.ContainerName != nil && *rule.ContainerName != s.Name {
		return 0, false
	}
	in := slices.Contains(rule.Values, t.ExitCode)
	return t.ExitCode, in == (rule.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn)
}

// hasCondition reports whether a pod has a condition.
func hasCondition(p *v1.Pod, pattern batchv1.PodFailurePolicyOnPodConditionsPattern) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == pattern.Type && c.Status == pattern.Status
	})
}
