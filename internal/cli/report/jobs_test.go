package report

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/pod"
)

// TestTimeOfRetries: a Job takes as long as its tries together, and so does its suite.
func TestTimeOfRetries(t *testing.T) {
	t.Parallel()
	r := Run{Began: time.Now(), Durations: map[pod.Key]time.Duration{}}
	job := Job{Job: &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "work"}}}
	for i, name := range []string{"work-0", "work-1", "work-2"} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		r.Pods, job.Pods = append(r.Pods, p), append(job.Pods, p)
		r.Durations[pod.KeyOf(p)] = time.Duration(i+1) * time.Second
	}
	r.Jobs = []Job{job}
	suites := junitOf(r).Suites
	if len(suites) != 1 || len(suites[0].Cases) != 1 {
		t.Fatalf("%+v", suites)
	}
	if s := suites[0]; s.Time != "6.000" || s.Cases[0].Time != s.Time {
		t.Errorf("the suite %s, its case %s", s.Time, s.Cases[0].Time)
	}
}

// TestStoppedIndexes: an index that was stopped since another one failed has not failed; after a deadline all have that
// were stopped.
func TestStoppedIndexes(t *testing.T) {
	t.Parallel()
	indexed := batchv1.IndexedCompletion
	podOf := func(index string, phase v1.PodPhase) *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "work-" + index + string(phase),
				Annotations: map[string]string{batchv1.JobCompletionIndexAnnotation: index}},
			Status: v1.PodStatus{Phase: phase},
		}
	}
	for name, x := range map[string]struct {
		pods []*v1.Pod
		want string
	}{
		"another has failed": {
			[]*v1.Pod{
				podOf("0", v1.PodSucceeded), podOf("1", v1.PodFailed), podOf("2", v1.PodFailed), podOf("2", v1.PodRunning), podOf("3", v1.PodRunning),
			},
			"0 passed, 1 failed, 2 skipped, 3 skipped, 4 skipped, ",
		},
		"at its deadline": {
			[]*v1.Pod{podOf("0", v1.PodSucceeded), podOf("1", v1.PodRunning), podOf("3", v1.PodPending)},
			"0 passed, 1 failed, 2 skipped, 3 failed, 4 skipped, ",
		},
	} {
		job := Job{Pods: x.pods, Job: &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "work"},
			Spec:       batchv1.JobSpec{Completions: new(int32(5)), CompletionMode: &indexed},
			Status: batchv1.JobStatus{CompletedIndexes: "0", Conditions: []batchv1.JobCondition{{
				Type: batchv1.JobFailed, Status: v1.ConditionTrue, Reason: "Failed", Message: "it failed",
			}}},
		}}
		got := ""
		for _, c := range (Run{Durations: map[pod.Key]time.Duration{}}).jobCases(job) {
			switch {
			case c.Failure != nil:
				got += c.Name + " failed, "
			case c.Skipped != nil:
				got += c.Name + " skipped, "
			default:
				got += c.Name + " passed, "
			}
		}
		if got != x.want {
			t.Errorf("%s: %s, want %s", name, got, x.want)
		}
	}
}
