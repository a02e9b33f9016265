package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/workload/cronjobs"
)

// cronJobMetrics are the metrics of CronJobs, as in kube-state-metrics (docs/metrics/workload/cronjob-metrics.md). All
// have the labels namespace and cronjob, and those here.
func cronJobMetrics() []podMetric {
	return []podMetric{
		{"kube_cronjob_info", "1; the labels describe a CronJob.", []string{"schedule", "concurrency_policy", "timezone"}},
		{"kube_cronjob_created", "Since when the times of a CronJob count, in seconds since the epoch.", nil},
		{"kube_cronjob_spec_suspend", "1 if a CronJob is suspended.", nil},
		{"kube_cronjob_spec_starting_deadline_seconds", "How late a time of a CronJob may start.", nil},
		{"kube_cronjob_spec_successful_job_history_limit", "How many complete Jobs of a CronJob stay.", nil},
		{"kube_cronjob_spec_failed_job_history_limit", "How many failed Jobs of a CronJob stay.", nil},
		{"kube_cronjob_status_active", "Jobs of a CronJob that have not finished.", nil},
		{"kube_cronjob_status_last_schedule_time", "The time that was started last, in seconds since the epoch.", nil},
		{"kube_cronjob_status_last_successful_time", "When a Job was complete last, in seconds since the epoch.", nil},
		{"kube_cronjob_next_schedule_time", "The next time of a CronJob, in seconds since the epoch.", nil},
	}
}

// describeCronJobs returns the descriptions of the metrics of CronJobs, by name.
func describeCronJobs() map[string]*prometheus.Desc {
	return describe("", cronJobMetrics(), "namespace", "cronjob")
}

// collectCronJobs emits the metrics of the CronJobs.
func collectCronJobs(descs map[string]*prometheus.Desc, d manifest.Desired, out chan<- prometheus.Metric) {
	for _, w := range d.Workloads {
		c, is := w.Object.(*batchv1.CronJob)
		history := d.CronJobs[w.ID]
		if !is || history == nil {
			continue
		}
		gauge := func(name string, value float64, labels ...string) {
			all := append([]string{w.Key.Namespace, w.Key.Name}, labels...)
			out <- prometheus.MustNewConstMetric(descs[name], prometheus.GaugeValue, value, all...)
		}
		at := func(name string, t time.Time) {
			if !t.IsZero() {
				gauge(name, float64(t.Unix()))
			}
		}
		s := &c.Spec
		gauge("kube_cronjob_info", 1, s.Schedule, string(s.ConcurrencyPolicy), ptr.Deref(s.TimeZone, "local"))
		gauge("kube_cronjob_spec_suspend", boolean(ptr.Deref(s.Suspend, false)))
		if n := s.StartingDeadlineSeconds; n != nil {
			gauge("kube_cronjob_spec_starting_deadline_seconds", float64(*n))
		}
		gauge("kube_cronjob_spec_successful_job_history_limit", float64(ptr.Deref(s.SuccessfulJobsHistoryLimit, 0)))
		gauge("kube_cronjob_spec_failed_job_history_limit", float64(ptr.Deref(s.FailedJobsHistoryLimit, 0)))
		gauge("kube_cronjob_status_active", float64(len(history.Active())))
		at("kube_cronjob_created", history.Created)
		at("kube_cronjob_status_last_schedule_time", history.LastSchedule)
		at("kube_cronjob_status_last_successful_time", history.LastSuccessful)
		if !w.AtBoot {
			at("kube_cronjob_next_schedule_time", cronjobs.Next(c, history, time.Now()))
		}
	}
}
