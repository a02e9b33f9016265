package agent

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/runtime/fake"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/cronjobs"
)

// simulatedCron is the name of the simulation's CronJob, and simulatedEvery the time between its times.
const (
	simulatedCron  = "cron"
	simulatedEvery = 2 * time.Minute
)

// putCron offers version n of a CronJob, or none.
func (s *simulation) putCron(n int) {
	path := filepath.Join(s.o.Sources.Manifests[0], "cron.yaml")
	if n == 0 {
		_ = os.Remove(path)
		return
	}
	s.texts++
	policies := []batchv1.ConcurrencyPolicy{batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent}
	c := batchv1.CronJob{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "CronJob"},
		ObjectMeta: metav1.ObjectMeta{
			Name: simulatedCron, Annotations: map[string]string{"pad": fmt.Sprintf("%0*d", s.texts, 0)},
		},
		Spec: batchv1.CronJobSpec{
			Schedule: "*/2 * * * *", TimeZone: ptr.To("UTC"), ConcurrencyPolicy: policies[n%3],
			SuccessfulJobsHistoryLimit: ptr.To(int32(n % 2)),
		},
	}
	c.Spec.JobTemplate.Spec.BackoffLimit = ptr.To[int32](1000)
	image := fmt.Sprintf("cron:%d", n)
	s.w.engine.AddImage(image, fake.Script{Run: time.Duration(n%4) * time.Minute})
	c.Spec.JobTemplate.Spec.Template.Spec = v1.PodSpec{
		RestartPolicy: v1.RestartPolicyNever, TerminationGracePeriodSeconds: ptr.To[int64](5),
		Containers: []v1.Container{{Name: "a", Image: image}},
	}
	s.putObject(path, c)
}

// changeCron has the CronJob come, change or go.
func (s *simulation) changeCron() {
	n := 0
	if s.r.IntN(4) > 0 {
		n = s.next()
	}
	s.cron = n
	s.putCron(n)
}

// askForJob asks the CronJob for a Job, as podrun create job does.
func (s *simulation) askForJob() {
	n, h := s.next(), s.w.recordedCron()
	if h == nil {
		return
	}
	q := cronjobs.Request{UID: h.UID, Job: fmt.Sprintf("%s-asked-%d", simulatedCron, n)}
	_ = owner.NewJobRequests(s.o.Dirs, slog.New(slog.DiscardHandler)).Post(q) // fails where no podrun has run yet
}

// recordedCron returns what is recorded of the CronJob; nil if nothing is. It needs no mutex of the world's.
func (w *world) recordedCron() *cronjobs.History {
	texts, err := w.disk.ReadRuns()
	if err != nil {
		return nil
	}
	var r checkpoint.Run
	h := &cronjobs.History{}
	if json.Unmarshal(texts["CronJob_default_"+simulatedCron], &r) != nil || json.Unmarshal(r.History, h) != nil {
		return nil
	}
	return h
}

// learnCron takes note of the Jobs that the CronJob has recorded.
func (w *world) learnCron() {
	h := w.recordedCron()
	if h == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range h.Jobs {
		w.cronOf[j.Name] = h.UID
	}
}

// cronOnce: a Job of a CronJob is recorded by it before it begins, and no other run has its name: a time of the schedule
// is started once.
func cronOnce(w *world, i *instance) string {
	of, _ := workload.Of(i.pod)
	if !strings.HasPrefix(of.Key.Name, simulatedCron+"-") {
		return ""
	}
	by, recorded := w.cronOf[of.Key.Name]
	if !recorded {
		return of.Key.Name + " was never recorded"
	}
	key, run := by+" "+of.Key.Name, workload.RunOf(i.pod)
	if before, ran := w.cronRan[key]; ran && before != run {
		return fmt.Sprintf("%s has run as %s, and runs again as %s", of.Key.Name, before, run)
	}
	w.cronRan[key] = run
	return ""
}

// cronGoesOn returns what says that the CronJob has not started another time since now.
func (w *world) cronGoesOn() (missing func() string) {
	last := func() time.Time {
		if h := w.recordedCron(); h != nil {
			return h.LastSchedule
		}
		return time.Time{}
	}
	before := last()
	return func() string {
		h := w.recordedCron()
		if at := last(); at.Equal(before) && (h == nil || h.Held.IsZero()) {
			return fmt.Sprintf("it was started last at %s", at)
		}
		return ""
	}
}

// cronRemains says what is left of the CronJob.
func (w *world) cronRemains() []string {
	left := w.podsRemain(simulatedCron + "-")
	texts, err := w.disk.ReadRuns()
	for name := range texts {
		if strings.Contains(name, simulatedCron) {
			left = append(left, name)
		}
	}
	if err != nil {
		left = append(left, err.Error())
	}
	return left
}
