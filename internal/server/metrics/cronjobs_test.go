package metrics

import (
	"log/slog"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/cronjobs"
)

// TestCronJobsAsKubeStateMetrics: names, labels and values are those of kube-state-metrics' docs/metrics/workload.
func TestCronJobsAsKubeStateMetrics(t *testing.T) {
	t.Parallel()
	w := &workload.Workload{
		ID:       workload.ID{Kind: workload.CronJob, Key: pod.Key{Namespace: "default", Name: "backup"}},
		Template: &v1.Pod{}, Object: &batchv1.CronJob{Spec: batchv1.CronJobSpec{
			Schedule: "@every 1h", ConcurrencyPolicy: batchv1.ForbidConcurrent, StartingDeadlineSeconds: ptr.To[int64](60),
			TimeZone: ptr.To("UTC"), SuccessfulJobsHistoryLimit: ptr.To[int32](3), FailedJobsHistoryLimit: ptr.To[int32](1),
		}},
	}
	far := time.Unix(4_000_000_000, 0) // later than now: the next time counts from now
	h := &cronjobs.History{
		Created: time.Unix(1000, 0), LastSchedule: time.Unix(2000, 0), LastSuccessful: time.Unix(3000, 0),
		Jobs: []cronjobs.Job{{Name: "backup-1", Outcome: batchv1.JobComplete}, {Name: "backup-2"}, {Name: "now", Manual: true}},
	}
	m := New(slog.New(slog.DiscardHandler))
	m.Watch(machine{desired: manifest.Desired{
		Workloads: []*workload.Workload{w}, Histories: workload.Histories{CronJobs: map[workload.ID]*cronjobs.History{w.ID: h}},
	}})
	text := scrape(t, m)
	wantLines(t, text,
		`kube_cronjob_info{concurrency_policy="Forbid",cronjob="backup",namespace="default",schedule="@every 1h",timezone="UTC"} 1`,
		`kube_cronjob_created{cronjob="backup",namespace="default"} 1000`,
		`kube_cronjob_spec_suspend{cronjob="backup",namespace="default"} 0`,
		`kube_cronjob_spec_starting_deadline_seconds{cronjob="backup",namespace="default"} 60`,
		`kube_cronjob_spec_successful_job_history_limit{cronjob="backup",namespace="default"} 3`,
		`kube_cronjob_spec_failed_job_history_limit{cronjob="backup",namespace="default"} 1`,
		`kube_cronjob_status_active{cronjob="backup",namespace="default"} 1`,
		`kube_cronjob_status_last_schedule_time{cronjob="backup",namespace="default"} 2000`,
		`kube_cronjob_status_last_successful_time{cronjob="backup",namespace="default"} 3000`,
	)
	promtool(t, text)
	c := w.Object.(*batchv1.CronJob)
	if next := cronjobs.Next(c, h, far); next.Unix() != 4_000_001_600 { // 2000 s and whole hours
		t.Errorf("next: %d", next.Unix())
	}
	c.Spec.Suspend = ptr.To(true)
	if next := cronjobs.Next(c, h, far); !next.IsZero() {
		t.Errorf("suspended, and next %s", next)
	}
}
