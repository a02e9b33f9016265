package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/workload/jobs"
)

// jobMetrics are the metrics of Jobs, as in kube-state-metrics (docs/metrics/workload/job-metrics.md). All have the
// labels namespace and job_name, and those here.
func jobMetrics() []podMetric {
	return []podMetric{
		{"kube_job_info", "1; the labels describe a Job.", nil},
		{"kube_job_spec_parallelism", "How many pods of a Job may run at once.", nil},
		{"kube_job_spec_completions", "How many pods of a Job have to succeed.", nil},
		{"kube_job_spec_active_deadline_seconds", "How long a Job may be active.", nil},
		{"kube_job_status_active", "Pods of a Job that run or are to.", nil},
		{"kube_job_status_succeeded", "Pods of a Job that have succeeded.", nil},
		{
			"kube_job_status_failed",
			"1 for the reason why a Job with failed pods has failed, 0 for the others; without a reason, how many pods " +
				"have failed.", []string{"reason"},
		},
		{"kube_job_status_suspended", "1 while a Job is suspended.", nil},
		{"kube_job_status_start_time", "When a Job started, in seconds since the epoch.", nil},
		{"kube_job_status_completion_time", "When a Job was complete, in seconds since the epoch.", nil},
		{"kube_job_complete", "1 for the status of a Job's condition Complete, 0 for the others.", []string{"condition"}},
		{"kube_job_failed", "1 for the status of a Job's condition Failed, 0 for the others.", []string{"condition"}},
	}
}

// describeJobs returns the descriptions of the metrics of Jobs, by name.
func describeJobs() map[string]*prometheus.Desc {
	return describe("", jobMetrics(), "namespace", "job_name")
}

// collectJobs emits the metrics of the Jobs.
func collectJobs(descs map[string]*prometheus.Desc, d manifest.Desired, out chan<- prometheus.Metric) {
	for _, w := range d.Workloads {
		history := d.Jobs[w.ID]
		job, is := w.Object.(*batchv1.Job)
		if !is || history == nil {
			continue
		}
		collectJob(job, history, func(name string, value float64, labels ...string) {
			all := append([]string{w.Key.Namespace, w.Key.Name}, labels...)
			out <- prometheus.MustNewConstMetric(descs[name], prometheus.GaugeValue, value, all...)
		})
	}
}

func collectJob(
	job *batchv1.Job, history *jobs.History, gauge func(name string, value float64, labels ...string),
) {
	s := &history.Status
	gauge("kube_job_info", 1)
	gauge("kube_job_spec_parallelism", float64(*job.Spec.Parallelism))
	if n := job.Spec.Completions; n != nil {
		gauge("kube_job_spec_completions", float64(*n))
	}
	if n := job.Spec.ActiveDeadlineSeconds; n != nil {
		gauge("kube_job_spec_active_deadline_seconds", float64(*n))
	}
	gauge("kube_job_status_active", float64(s.Active))
	gauge("kube_job_status_succeeded", float64(s.Succeeded))
	end := jobs.Finished(s)
	collectFailed(s, end, gauge)
	gauge("kube_job_status_suspended", boolean(jobs.State(s) == string(batchv1.JobSuspended)))
	seconds := func(t time.Time) float64 { return float64(t.Unix()) }
	if s.StartTime != nil {
		gauge("kube_job_status_start_time", seconds(s.StartTime.Time))
	}
	if s.CompletionTime != nil {
		gauge("kube_job_status_completion_time", seconds(s.CompletionTime.Time))
	}
	if end == nil {
		return
	}
	name := "kube_job_complete"
	if end.Type == batchv1.JobFailed {
		name = "kube_job_failed"
	}
	for label, is := range map[string]v1.ConditionStatus{
		"true": v1.ConditionTrue, "false": v1.ConditionFalse, "unknown": v1.ConditionUnknown,
	} {
		gauge(name, boolean(end.Status == is), label)
	}
}

// failureReasons are those that kube-state-metrics has a value of 0 or 1 for.
var failureReasons = []string{batchv1.JobReasonBackoffLimitExceeded, batchv1.JobReasonDeadlineExceeded, "Evicted"}

// collectFailed emits kube_job_status_failed as kube-state-metrics does: the number of failed pods under the empty
// reason, unless the Job has failed for one of failureReasons.
func collectFailed(
	s *batchv1.JobStatus, end *batchv1.JobCondition, gauge func(name string, value float64, labels ...string),
) {
	const name = "kube_job_status_failed"
	counts := true
	if s.Failed > 0 && end != nil && end.Type == batchv1.JobFailed {
		for _, reason := range failureReasons {
			gauge(name, boolean(end.Reason == reason), reason)
			counts = counts && end.Reason != reason
		}
	}
	if counts {
		gauge(name, float64(s.Failed), "")
	}
}
