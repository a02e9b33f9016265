package status

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/jobs"
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
