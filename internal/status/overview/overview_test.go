package overview

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/cronjobs"
	"podrun.io/podrun/internal/workload/jobs"
	"podrun.io/podrun/internal/workload/revisions"
)

// TestOf: each kind says in a few words how it is.
func TestOf(t *testing.T) {
	t.Parallel()
	deployment := &appsv1.Deployment{}
	deployment.Spec.ProgressDeadlineSeconds = ptr.To[int32](600)
	job := &batchv1.Job{Spec: batchv1.JobSpec{Completions: ptr.To[int32](3)}}
	cron := &batchv1.CronJob{Spec: batchv1.CronJobSpec{Schedule: "@daily"}}
	id := func(kind workload.Kind, name string) workload.ID {
		return workload.ID{Kind: kind, Key: pod.Key{Namespace: "default", Name: name}}
	}
	failed := &jobs.History{}
	failed.Status.Succeeded = 1
	failed.Status.Conditions = []batchv1.JobCondition{{
		Type: batchv1.JobFailed, Status: v1.ConditionTrue, Reason: "BackoffLimitExceeded", Message: "too often",
	}}
	d := manifest.Desired{}
	add := func(kind workload.Kind, name string, w workload.Workload) workload.ID {
		w.ID, w.Template = id(kind, name), &v1.Pod{}
		d.Workloads = append(d.Workloads, &w)
		return w.ID
	}
	add(workload.Deployment, "web", workload.Workload{Object: deployment, Replicas: 1})
	back := add(workload.Deployment, "back", workload.Workload{Object: deployment, Replicas: 0})
	bad := add(workload.Job, "bad", workload.Workload{Object: job})
	add(workload.Job, "new", workload.Workload{Object: job})
	nightly := add(workload.CronJob, "nightly", workload.Workload{Object: cron})
	stuck := add(workload.CronJob, "stuck", workload.Workload{Object: cron})
	d.Jobs = map[workload.ID]*jobs.History{bad: failed}
	d.Revisions = map[workload.ID]*revisions.History{back: {
		Good: &revisions.Revision{ID: "a"}, RolledBack: "b",
		Past: []revisions.Outcome{{ID: "b", Result: revisions.RolledBack, Reason: "it has failed", Ended: time.Now()}},
	}}
	d.CronJobs = map[workload.ID]*cronjobs.History{
		nightly: {LastSchedule: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), Jobs: []cronjobs.Job{{Name: "nightly-1"}}},
		stuck:   {Problem: cronjobs.Problem{Reason: "FailedCreate", Message: "too many"}},
	}
	ready := v1.Pod{}
	ready.Name, ready.Namespace = "web-0-n", "default"
	ready.Annotations = map[string]string{workload.Annotation: "Deployment/web"}
	ready.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	got := Of(d, []v1.Pod{ready})
	want := []Workload{
		{Kind: "CronJob", Name: "nightly", State: "1 active", Reason: "@daily, last at 2026-03-01T00:00:00Z", Well: true},
		{Kind: "CronJob", Name: "stuck", State: "0 active", Reason: "FailedCreate: too many"},
		{Kind: "Deployment", Name: "back", State: "0/0 ready"},
		{Kind: "Deployment", Name: "web", State: "1/1 ready", Well: true},
		{Kind: "Job", Name: "bad", State: "Failed 1/3", Reason: "BackoffLimitExceeded: too often"},
		{Kind: "Job", Name: "new", State: "Running 0/3", Well: true},
	}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, w := range want {
		if w.Namespace = "default"; w.Name == "back" { // its reason is that of the condition
			w.Reason = got[i].Reason
		}
		if got[i] != w {
			t.Errorf("%+v\nwant %+v", got[i], w)
		}
	}
}
