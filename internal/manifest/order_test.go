package manifest

import (
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/jobs"
)

func TestCircles(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		// pods are given as name=after,after.
		pods string
		want string
	}{
		{"none", "a= b=a c=a,b", ""},
		{"a diamond is none", "a=b,c b=d c=d d=", ""},
		{"nor is one that is not there", "a=nobody", ""},
		{"itself", "a=a", "default/a-n after default/a-n"},
		{"two", "a=b b=a c=a", "default/a-n after default/b-n after default/a-n"},
		{"behind others", "a=b b=c c=d d=b", "default/b-n after default/c-n after default/d-n after default/b-n"},
		{"two cycles", "a=b b=a x=y y=x", "default/a-n after default/b-n after default/a-n; default/x-n after default/y-n after default/x-n"},
		{"another namespace's", "a=other/a", ""},
	} {
		pods := map[pod.Key]*v1.Pod{}
		for _, one := range strings.Fields(tt.pods) {
			name, after, _ := strings.Cut(one, "=")
			p := &v1.Pod{}
			p.Namespace, p.Name, p.Spec.NodeName = "default", name+"-n", "n"
			if after != "" {
				p.Annotations = map[string]string{pod.AnnotationAfter: strings.ReplaceAll(after, ",", " , ")}
			}
			pods[pod.KeyOf(p)] = p
		}
		var got []string
		for _, problem := range cycles(Desired{Pods: pods}) {
			_, way, _ := strings.Cut(problem.Err.Error(), "pods wait for each other: ")
			got = append(got, way)
		}
		if strings.Join(got, "; ") != tt.want {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}

// TestManyCycles: the text of the problems is in proportion to the annotations, however many cycles these make.
func TestManyCycles(t *testing.T) {
	t.Parallel()
	const n = 2000
	for name, after := range map[string]func(i int) string{
		"one pod, itself again and again": func(int) string { return strings.Repeat("p0,", n) + "p0" },
		"each leads on, and to the first": func(i int) string { return fmt.Sprintf("p%d,p0", (i+1)%n) },
		"each leads on, and halfway back": func(i int) string { return fmt.Sprintf("p%d,p%d", (i+1)%n, i/2) },
		"a way back for each of half of the pods": func(i int) string {
			if i < n/2 {
				return fmt.Sprintf("p%d", i+1)
			}
			return fmt.Sprintf("p%d,p%d", (i+1)%n, n-i)
		},
	} {
		pods, size := map[pod.Key]*v1.Pod{}, 0
		for i := range n {
			p := &v1.Pod{}
			p.Namespace, p.Name, p.Spec.NodeName = "default", fmt.Sprintf("p%d-n", i), "n"
			p.Annotations = map[string]string{pod.AnnotationAfter: after(i)}
			pods[pod.KeyOf(p)] = p
			size += len(p.Name) + len(after(i))
			if strings.HasPrefix(name, "one pod") {
				break
			}
		}
		problems := cycles(Desired{Pods: pods})
		text := 0
		for _, problem := range problems {
			text += len(problem.Err.Error())
		}
		if len(problems) == 0 || text > 10*size {
			t.Errorf("%s: %d problems with %d bytes for %d bytes of manifests", name, len(problems), text, size)
		}
	}
}

// TestCycleThroughAJob: a Job that is not complete is a part of a cycle; one that is complete is not.
func TestCycleThroughAJob(t *testing.T) {
	t.Parallel()
	const text = `apiVersion: batch/v1
kind: Job
metadata: {name: job}
spec:
  template:
    metadata: {annotations: {podrun.io/after: a}}
    spec: {restartPolicy: Never, containers: [{name: c, image: 'i:1'}]}
---
apiVersion: v1
kind: Pod
metadata: {name: a, annotations: {podrun.io/after: job}}
spec: {containers: [{name: c, image: 'i:1'}]}
`
	files := map[string]string{"/m/all.yaml": text}
	d := merged(t, workload.Recorded{}, files)
	if len(d.Problems) != 1 || !strings.Contains(d.Problems[0].Err.Error(), "default/a-node1 after default/job-node1 after default/a-node1") {
		t.Errorf("problems: %v", d.Problems)
	}
	done := &jobs.History{}
	id := workload.ID{Kind: workload.Job, Key: pod.Key{Namespace: "default", Name: "job"}}
	*done = *d.Jobs[id]
	done.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: v1.ConditionTrue}}
	d = merged(t, workload.Recorded{Histories: workload.Histories{Jobs: map[workload.ID]*jobs.History{id: done}}}, files)
	if len(d.Problems) != 0 {
		t.Errorf("problems with a Job that is complete: %v", d.Problems)
	}
}
