package report

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/pod"
)

// TestTimeOfRetries: a Job takes as long as its tries together, and so does its suite: no case takes longer than it.
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
