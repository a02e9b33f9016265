package workload

import (
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload/jobs"
)

const (
	// AnnotationRunPolicy is the annotation of a Job that, with the value RunPerBoot, makes it run again after
	// each boot. On the pods of a Job it is OnceEver: what has ended does not run again.
	AnnotationRunPolicy = "podrun.io/run-policy"
	RunPerBoot          = "per-boot"
	onceEver            = "once-ever"

	// labelRun is Kubernetes' label for the UID of a pod's Job. Here it has the Job's run.
	labelRun = "batch.kubernetes.io/controller-uid"
	// indexEnv is the environment variable with the completion index.
	indexEnv = "JOB_COMPLETION_INDEX"
)

// Like returns the pod that the Job would have in the place of p, which is a pod of another run of it.
func (w *Workload) Like(p *v1.Pod) *v1.Pod {
	t := jobs.Try{Name: strings.TrimSuffix(p.Name, w.Suffix)}
	t.Index, _ = strconv.Atoi(p.Annotations[batchv1.JobCompletionIndexAnnotation])
	t.Number, _ = strconv.Atoi(p.Annotations[batchv1.JobIndexFailureCountAnnotation])
	like := w.try(t, RunOf(p))
	if like.Annotations == nil {
		like.Annotations = map[string]string{}
	}
	like.Annotations[Annotation] = w.String()
	return like
}

// RunOf returns the run of a Job that a pod belongs to; "" if it belongs to none.
func RunOf(p *v1.Pod) string { return p.Labels[labelRun] }

// expandJob adds to the plan what a Job needs.
func (w *Workload) expandJob(recorded Recorded, plan *Plan) {
	decide := jobs.Decide
	if recorded.Frozen[w.ID] {
		decide = jobs.Keep
	}
	in := jobs.Input{
		Job: w.Object.(*batchv1.Job), Document: w.Document, Former: string(w.Template.UID),
		PerBoot: w.PerBoot, Boot: recorded.Boot, History: recorded.Jobs[w.ID], Pods: map[string]jobs.Observed{},
		Now: recorded.Now,
		Reserved: func(name string) bool {
			return recorded.Reserved(pod.Key{Namespace: w.Key.Namespace, Name: name + w.Suffix})
		},
	}
	for key, owner := range recorded.Exists {
		if owner == w.String() && key.Namespace == w.Key.Namespace {
			in.Pods[strings.TrimSuffix(key.Name, w.Suffix)] = recorded.Pods[key]
			if recorded.Frozen[w.ID] {
				plan.Retained[key] = true
			}
		}
	}
	next := decide(in)
	if next.History != nil {
		plan.Jobs[w.ID] = next.History
	}
	for _, t := range next.Pods {
		plan.Pods = append(plan.Pods, Instance{Workload: w, Pod: w.try(t, next.History.Run), Run: next.History.Run})
	}
	plan.wakeAt(next.Next)
}

// try returns the pod of a try, with the labels, annotations, host name and environment that Kubernetes' Job
// controller gives it.
func (w *Workload) try(t jobs.Try, run string) *v1.Pod {
	p := w.Template.DeepCopy()
	p.Name = t.Name + w.Suffix
	for _, prefix := range []string{"batch.kubernetes.io/", ""} {
		label(p, prefix+"controller-uid", run)
		label(p, prefix+"job-name", w.Key.Name)
	}
	p.Annotations[AnnotationRunPolicy] = onceEver
	job := w.Object.(*batchv1.Job)
	if mode := job.Spec.CompletionMode; mode == nil || *mode != batchv1.IndexedCompletion {
		return p
	}
	index := strconv.Itoa(t.Index)
	label(p, batchv1.JobCompletionIndexAnnotation, index)
	p.Annotations[batchv1.JobCompletionIndexAnnotation] = index
	if job.Spec.BackoffLimitPerIndex != nil {
		p.Annotations[batchv1.JobIndexFailureCountAnnotation] = strconv.Itoa(t.Number)
	}
	p.Spec.Hostname = w.Key.Name + "-" + index
	for _, c := range pod.AllContainers(p) {
		if !slices.ContainsFunc(c.Env, func(e v1.EnvVar) bool { return e.Name == indexEnv }) {
			c.Env = append(c.Env, v1.EnvVar{Name: indexEnv, Value: index})
		}
	}
	return p
}
