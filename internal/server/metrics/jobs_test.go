package metrics

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/jobs"
)

// TestFailedJobs: kube_job_status_failed has the values that kube-state-metrics gives it (internal/store/job_test.go there).
func TestFailedJobs(t *testing.T) {
	t.Parallel()
	id := workload.ID{Kind: workload.Job, Key: pod.Key{Namespace: "default", Name: "work"}}
	for name, c := range map[string]struct {
		failed int32
		reason string // of the condition Failed; "-": there is none
		want   []string
	}{
		"none":            {0, "-", []string{`"" 0`}},
		"active":          {2, "-", []string{`"" 2`}},
		"too many":        {3, batchv1.JobReasonBackoffLimitExceeded, []string{`"BackoffLimitExceeded" 1`, `"DeadlineExceeded" 0`, `"Evicted" 0`}},
		"too late":        {1, batchv1.JobReasonDeadlineExceeded, []string{`"BackoffLimitExceeded" 0`, `"DeadlineExceeded" 1`, `"Evicted" 0`}},
		"another reason":  {4, batchv1.JobReasonPodFailurePolicy, []string{`"" 4`, `"BackoffLimitExceeded" 0`, `"DeadlineExceeded" 0`, `"Evicted" 0`}},
		"without failure": {0, batchv1.JobReasonDeadlineExceeded, []string{`"" 0`}},
	} {
		job := &batchv1.Job{}
		job.Spec.Parallelism = new(int32(1))
		h := &jobs.History{Status: batchv1.JobStatus{Failed: c.failed}}
		if c.reason != "-" {
			h.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: v1.ConditionTrue, Reason: c.reason}}
		}
		m := New(slog.New(slog.DiscardHandler))
		m.Watch(machine{desired: manifest.Desired{
			Workloads: []*workload.Workload{{ID: id, Object: job, Template: &v1.Pod{}}},
			Histories: workload.Histories{Jobs: map[workload.ID]*jobs.History{id: h}},
		}})
		text := scrape(t, m)
		var got []string
		for line := range strings.Lines(text) {
			const prefix = `kube_job_status_failed{job_name="work",namespace="default",reason=`
			if value, is := strings.CutPrefix(line, prefix); is {
				got = append(got, strings.TrimSpace(strings.Replace(value, "}", "", 1)))
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		promtool(t, text)
	}
}
