package workload

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload/cronjobs"
	"podrun.io/podrun/internal/workload/jobs"
)

func newCronJob() *Workload {
	o := &batchv1.CronJob{}
	o.Namespace, o.Name = "default", "c"
	o.Spec = batchv1.CronJobSpec{Schedule: "*/5 * * * *", TimeZone: ptr.To("UTC"), Suspend: ptr.To(false)}
	o.Spec.JobTemplate.Spec = batchv1.JobSpec{Completions: ptr.To[int32](1), Parallelism: ptr.To[int32](1), BackoffLimit: ptr.To[int32](0)}
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i:1"}}}}
	p.Namespace, p.Name, p.UID, p.Annotations = "default", "c-n", "t", map[string]string{Annotation: "CronJob/c"}
	return &Workload{
		ID: ID{Kind: CronJob, Key: pod.Key{Namespace: "default", Name: "c"}}, Object: o, Template: p, Suffix: "-n", Replicas: 1,
	}
}

// TestCronJob: a time of the schedule becomes a Job with Kubernetes' name, whose pod goes the way of Jobs. The CronJob
// sees its end once that is recorded.
func TestCronJob(t *testing.T) {
	t.Parallel()
	w := newCronJob()
	at := func(text string) time.Time {
		now, err := time.Parse(time.DateTime, "2026-03-01 "+text)
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	recorded := Recorded{Now: at("10:04:30"), Clock: cronjobs.Trust{Synchronized: true}}
	expand := func() Plan {
		plan := Expand([]*Workload{w}, recorded)
		recorded.Histories = plan.Histories
		return plan
	}
	if plan := expand(); len(plan.Pods) != 0 || !plan.Next.Equal(at("10:05:00")) {
		t.Fatalf("before the time: %+v", plan)
	}
	recorded.Now = at("10:05:00")
	plan := expand()
	if len(plan.Pods) != 1 || len(plan.Made) != 1 || plan.Made[0].Key.Name != "c-29539325" {
		t.Fatalf("at the time: %+v", plan)
	}
	p := plan.Pods[0].Pod
	if p.Name != "c-29539325-0-n" || p.Annotations[Annotation] != "Job/c-29539325" || p.Labels["job-name"] != "c-29539325" {
		t.Errorf("pod: %+v", p.ObjectMeta)
	}
	ended := p.DeepCopy()
	ended.Status.Phase = v1.PodSucceeded
	key := pod.KeyOf(p)
	recorded.Exists = map[pod.Key]string{key: "Job/c-29539325"}
	recorded.Pods = map[pod.Key]jobs.Observed{key: {Run: RunOf(p), Pod: ended, Ended: true}}
	if plan = expand(); !plan.Next.Equal(recorded.Now) || plan.CronJobs[w.ID].Jobs[0].Outcome != "" {
		t.Errorf("at the end of the Job: %+v", plan)
	}
	if plan = expand(); plan.CronJobs[w.ID].Jobs[0].Outcome != batchv1.JobComplete {
		t.Errorf("after the end of the Job: %+v", plan.CronJobs[w.ID])
	}
	// An edit of the template is for later Jobs.
	w = newCronJob()
	w.Template.UID = "edited"
	if again := expand(); again.Made[0].Template.UID != plan.Made[0].Template.UID {
		t.Error("an edit changes a Job that exists")
	}
}

// TestCronJobFrozen: of a CronJob whose record cannot be read nothing is started, stopped or forgotten.
func TestCronJobFrozen(t *testing.T) {
	t.Parallel()
	w := newCronJob()
	run, key := w.Job("c-29539325"), pod.Key{Namespace: "default", Name: "c-29539325-0-n"}
	plan := Expand([]*Workload{w}, Recorded{
		Histories: Histories{Jobs: map[ID]*jobs.History{run: {Run: "1"}, w.Job("other"): {Run: "2"}}},
		Exists:    map[pod.Key]string{key: run.String()}, Frozen: map[ID]bool{w.ID: true}, Now: time.Now(),
	})
	if len(plan.Pods) != 0 || len(plan.Jobs) != 1 || plan.Jobs[run] == nil || !plan.Retained[key] || len(plan.CronJobs) != 0 {
		t.Errorf("%+v", plan)
	}
}
