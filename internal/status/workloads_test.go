package status

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/jobs"
	"podrun.io/podrun/internal/workload/revisions"
)

// TestJobSince: a Job is as old as its run, however often podrun was started since.
func TestJobSince(t *testing.T) {
	t.Parallel()
	template := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Annotations: map[string]string{manifest.AnnotationSeen: "2026-03-04T05:06:07Z"},
	}}
	w := &workload.Workload{
		ID:     workload.ID{Kind: workload.Job, Key: pod.Key{Namespace: "default", Name: "work"}},
		Object: &batchv1.Job{}, Template: template,
	}
	began := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for want, h := range map[string]*jobs.History{
		"2026-01-02T03:04:05Z": {Began: began},
		"2026-01-02T03:05:05Z": {Status: batchv1.JobStatus{StartTime: &metav1.Time{Time: began.Add(time.Minute)}}},
		"2026-03-04T05:06:07Z": nil,
	} {
		d := manifest.Desired{Histories: workload.Histories{Jobs: map[workload.ID]*jobs.History{w.ID: h}}}
		if one, err := workloadOf(w, d); err != nil || one.Seen != want {
			t.Errorf("%s, %v; want %s", one.Seen, err, want)
		}
	}
}

// TestWorkloadOutcome: what is recorded of a revision is saved for commands, and is part of the status.
func TestWorkloadOutcome(t *testing.T) {
	t.Parallel()
	d := &appsv1.Deployment{}
	d.Name, d.Spec.ProgressDeadlineSeconds = "web", new(int32(600))
	w := &workload.Workload{
		ID:     workload.ID{Kind: workload.Deployment, Key: pod.Key{Namespace: "default", Name: "web"}},
		Object: d, Template: &v1.Pod{}, Replicas: 1,
	}
	back := revisions.Outcome{ID: "b", Result: revisions.RolledBack, Reason: "it has failed", Ended: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	saved, err := workloadOf(w, manifest.Desired{Histories: workload.Histories{Revisions: map[workload.ID]*revisions.History{
		w.ID: {Good: &revisions.Revision{ID: "a"}, RolledBack: "b", Past: []revisions.Outcome{back}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(saved)
	if err != nil {
		t.Fatal(err)
	}
	var read Workload
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	all := read.Summarize(d, nil, time.Now()).Conditions
	if len(all) != 2 || all[1].Reason != "ProgressDeadlineExceeded" || all[1].Status != v1.ConditionFalse ||
		!all[1].LastTransitionTime.Time.Equal(back.Ended) ||
		all[1].Message != `Deployment "web" has timed out progressing: it has failed` {
		t.Errorf("%+v", all)
	}
}

// TestWorkloadSince: an edit does not make a workload younger, and neither does a start of podrun.
func TestWorkloadSince(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "workloads.json")
	w := &workload.Workload{
		ID:     workload.ID{Kind: workload.Deployment, Key: pod.Key{Namespace: "default", Name: "web"}},
		Object: &appsv1.Deployment{}, Template: &v1.Pod{}, Replicas: 1,
	}
	file := NewWorkloadsFile(path)
	write := func(seen string, all ...*workload.Workload) {
		t.Helper()
		w.Template.Annotations = map[string]string{manifest.AnnotationSeen: seen}
		if err := file.Write(manifest.Desired{Workloads: all, Complete: true}); err != nil {
			t.Fatal(err)
		}
	}
	since := func(want string) {
		t.Helper()
		if all, err := readWorkloads(path); err != nil || len(all) != 1 || all[0].Since != want {
			t.Errorf("%+v, %v; want %s", all, err, want)
		}
	}
	write("2026-01-02T03:04:05Z", w)
	since("2026-01-02T03:04:05Z")
	write("2026-01-02T04:00:00Z", w)
	since("2026-01-02T03:04:05Z")
	file = NewWorkloadsFile(path)
	if err := file.Write(manifest.Desired{}); err != nil { // nothing has been read yet
		t.Fatal(err)
	}
	write("2026-01-02T05:00:00Z", w)
	since("2026-01-02T03:04:05Z")
	write("")
	write("2026-01-02T06:00:00Z", w) // it was removed, and put back
	since("2026-01-02T06:00:00Z")
}
