package record

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/jobs"
)

// TestForget: a run that was decided and has not begun keeps no later one waiting for its pods.
func TestForget(t *testing.T) {
	t.Parallel()
	r := New(nil)
	p := &v1.Pod{}
	p.Namespace, p.Name, p.Annotations = "default", "work-0-n", map[string]string{workload.Annotation: "Job/work"}
	id := workload.ID{Kind: workload.Job, Key: pod.Key{Namespace: "default", Name: "work"}}
	r.Save(workload.Histories{Jobs: map[workload.ID]*jobs.History{id: {Run: "1", Document: "d"}}})
	r.Sent(map[pod.Key]*v1.Pod{pod.KeyOf(p): p})
	if now := r.Recorded(); len(now.Jobs) != 1 || len(now.Pods) != 1 || len(now.Exists) != 1 {
		t.Fatalf("recorded: %+v", now)
	}
	r.Forget()
	if now := r.Recorded(); len(now.Jobs)+len(now.Pods)+len(now.Exists) != 0 {
		t.Errorf("recorded: %+v", now)
	}
}
