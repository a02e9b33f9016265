package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/fake"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/jobs"
)

// simulatedJob is the name of the simulation's Job.
const simulatedJob = "job"

// putJob offers version n of a Job with three indexes, or none.
func (s *simulation) putJob(n int) {
	path := filepath.Join(s.o.Sources.Manifests[0], "job.yaml")
	if n == 0 {
		_ = os.Remove(path)
		return
	}
	s.texts++
	three, two, many, grace, mode := int32(3), int32(2), int32(1000), int64(5), batchv1.IndexedCompletion
	job := batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{
			Name: simulatedJob, Annotations: map[string]string{"pad": fmt.Sprintf("%0*d", s.texts, 0)},
		},
		Spec: batchv1.JobSpec{Completions: &three, Parallelism: &two, BackoffLimit: &many, CompletionMode: &mode},
	}
	image := fmt.Sprintf("job:%d", n)
	s.w.engine.AddImage(image, fake.Script{})
	job.Spec.Template.Spec = v1.PodSpec{
		RestartPolicy: v1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace,
		Containers: []v1.Container{{Name: "a", Image: image}},
	}
	s.putObject(path, job)
}

// putObject writes the manifest of a workload.
func (s *simulation) putObject(path string, object any) {
	text, err := json.Marshal(object)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		s.w.set(func() { s.w.report("the simulation works", "%v", err) })
	}
}

// changeJob has the Job come, change or go.
func (s *simulation) changeJob() {
	n := 0
	if s.r.IntN(4) > 0 {
		n = s.next()
	}
	s.job = n
	s.putJob(n)
}

// learnUID takes note of a revision that is saved for the first time: the pods of a Job have UIDs of their own.
func (w *world) learnUID(uid pod.UID, text []byte) {
	var c checkpoint.Checkpoint
	if json.Unmarshal(text, &c) != nil || c.Pod == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.uids[uid]; !known {
		w.uids[uid] = c.Key()
	}
}

// recordedJob returns the recorded run of the Job; nil if there is none. It needs no mutex of the world's.
func (w *world) recordedJob() *jobs.History {
	texts, err := w.disk.ReadRuns()
	if err != nil || texts["default_"+simulatedJob] == nil {
		return nil
	}
	var r checkpoint.Run
	history := &jobs.History{}
	if json.Unmarshal(texts["default_"+simulatedJob], &r) != nil || json.Unmarshal(r.History, history) != nil {
		return nil
	}
	return history
}

// learnRun takes note of a run that was recorded, and that those before it are over.
func (w *world) learnRun() {
	history := w.recordedJob()
	w.mu.Lock()
	defer w.mu.Unlock()
	for run, at := range w.runs {
		if at.IsZero() && (history == nil || history.Run != run) {
			w.runs[run] = time.Now()
		}
	}
	if history != nil {
		w.runs[history.Run] = time.Time{}
	}
}

// indexOf returns the run and the index of a pod of a Job, as one text; "" if it is none.
func indexOf(p *v1.Pod) string {
	if workload.RunOf(p) == "" {
		return ""
	}
	return workload.RunOf(p) + " " + p.Annotations[batchv1.JobCompletionIndexAnnotation]
}

// indexOnce: an index of a Job never runs twice at once, or after its success.
func indexOnce(w *world, i *instance) string {
	index := indexOf(i.pod)
	if of, _ := workload.Of(i.pod); index == "" || of.Key.Name != simulatedJob {
		return ""
	}
	for _, other := range w.instances {
		if other != i && other.live && indexOf(other.pod) == index {
			return fmt.Sprintf("%s (%.8s) lives", other.key, other.id)
		}
	}
	switch at, ever := w.runs[workload.RunOf(i.pod)]; {
	case !ever:
		return "its run was never recorded"
	case !at.IsZero() && time.Since(at) > longestHang:
		// A start that is under way when the Job's manifest changes is not called off.
		return fmt.Sprintf("another run was recorded %s ago", time.Since(at))
	case !at.IsZero():
		return ""
	}
	history := w.recordedJob()
	run, at, _ := strings.Cut(index, " ")
	var number int
	if _, err := fmt.Sscan(at, &number); err != nil || jobs.Indexes(history.Status.CompletedIndexes)[number] {
		return fmt.Sprintf("index %s of run %s has succeeded, as is recorded: %s", at, run, history.Status.CompletedIndexes)
	}
	return ""
}

// jobSettled reports that the Job is complete; why says that it is not.
func (w *world) jobSettled() (why string) {
	history := w.recordedJob()
	if history == nil {
		return "its run is not recorded"
	}
	if !history.Complete() {
		return fmt.Sprintf("it has %d active, %q done", history.Status.Active, history.Status.CompletedIndexes)
	}
	return ""
}

// jobRemains says what is left of the Job's pods.
func (w *world) jobRemains() []string {
	left := w.podsRemain(simulatedJob + "-")
	if w.recordedJob() != nil {
		left = append(left, "its recorded run")
	}
	return left
}

// podsRemain says what is left of the pods whose names have a prefix.
func (w *world) podsRemain(prefix string) (left []string) {
	keys := map[pod.Key]bool{}
	w.set(func() {
		for _, key := range w.uids {
			if strings.HasPrefix(key.Name, prefix) {
				keys[key] = true
			}
		}
	})
	for key := range keys {
		left = append(left, w.remains(key)...)
	}
	return left
}
