package workload

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload/cronjobs"
	"podrun.io/podrun/internal/workload/jobs"
)

const (
	// AnnotationSchedule is the annotation of a CronJob that, with the value ScheduleBoot, makes it run once in each
	// boot in place of its schedule.
	AnnotationSchedule = "podrun.io/schedule"
	ScheduleBoot       = "boot"
	// annotationManual is kubectl's annotation of Jobs that somebody has made from a CronJob.
	annotationManual = "cronjob.kubernetes.io/instantiate"
)

// jobTemplate is what the Jobs of a CronJob are made from, as it is recorded.
type jobTemplate struct {
	Job batchv1.JobTemplateSpec `json:"job"`
	// Pod is Workload.Template.
	Pod *v1.Pod `json:"pod"`
}

// complete reports that Jobs can be made of it: its record was not damaged.
func (t *jobTemplate) complete() bool {
	s := &t.Job.Spec
	indexed := s.CompletionMode != nil && *s.CompletionMode == batchv1.IndexedCompletion
	return t.Pod != nil && len(t.Pod.Spec.Containers) > 0 && s.Parallelism != nil && s.BackoffLimit != nil &&
		(s.Completions != nil || !indexed)
}

// owners has what each Job belongs to: a CronJob, or itself.
type owners map[ID]ID

// ownersOf returns the owners of the Jobs that there are. A Job of a manifest belongs to nothing else.
func ownersOf(all []*Workload, recorded Recorded) owners {
	of := owners{}
	for id, h := range recorded.CronJobs {
		for _, j := range h.Jobs {
			of[id.Job(j.Name)] = id
		}
	}
	for _, w := range all {
		if w.Kind == Job {
			of[w.ID] = w.ID
		}
	}
	return of
}

// Job returns the ID of a Job in the namespace of a CronJob.
func (id ID) Job(name string) ID {
	return ID{Kind: Job, Key: pod.Key{Namespace: id.Key.Namespace, Name: name}}
}

// Made returns the IDs of the Jobs of a CronJob.
func (id ID) Made(h *cronjobs.History) (all []ID) {
	for _, j := range h.Jobs {
		all = append(all, id.Job(j.Name))
	}
	return all
}

// activePods returns how many pods the Jobs of a CronJob may run now; 0 if it is none.
func (w *Workload) activePods(recorded Recorded) int {
	if h := recorded.CronJobs[w.ID]; w.Kind == CronJob && h != nil {
		return len(h.Active()) * max(w.Replicas, 1) // those without pods are recorded too
	}
	return 0
}

// expandCronJob adds to the plan what a CronJob needs: its Jobs, which go on as those of manifests do. busy is how many
// pods those of the other CronJobs of its manifest may run.
func (w *Workload) expandCronJob(recorded Recorded, owner owners, busy int, plan *Plan) {
	h := recorded.CronJobs[w.ID]
	switch {
	case recorded.Frozen[w.ID] && h == nil:
		w.freeze(recorded, owner, plan)
		return
	case !recorded.Frozen[w.ID]:
		in := w.cronInput(recorded, owner)
		in.Busy = busy
		next := cronjobs.Decide(in)
		h = next.History
		plan.wakeAt(next.Next)
	}
	plan.CronJobs[w.ID] = h
	templates := map[string]*jobTemplate{}
	for key, text := range h.Templates {
		t := &jobTemplate{}
		if json.Unmarshal(text, t) == nil && t.complete() {
			templates[key] = t
		}
	}
	for _, j := range h.Jobs {
		t := templates[j.Template]
		if t == nil { // the record was damaged
			continue
		}
		made := w.make(j, h, t)
		owner[made.ID] = w.ID
		plan.Made = append(plan.Made, made)
		made.expandJob(recorded, plan)
		if run := plan.Jobs[made.ID]; j.Outcome == "" && run != nil && jobs.Finished(&run.Status) != nil {
			plan.wakeAt(recorded.Now) // the CronJob sees that when it is recorded
		}
	}
}

func (w *Workload) cronInput(recorded Recorded, owner owners) cronjobs.Input {
	o := w.Object.(*batchv1.CronJob)
	text, err := json.Marshal(jobTemplate{Job: o.Spec.JobTemplate, Pod: w.Template})
	if err != nil { // these types always have a text
		panic(err)
	}
	in := cronjobs.Input{
		CronJob: o, Template: text, Digest: string(w.Template.UID), AtBoot: w.AtBoot, Boot: recorded.Boot,
		History: recorded.CronJobs[w.ID], Jobs: map[string]*jobs.History{},
		Foreign: func(name string) bool {
			of, taken := owner[w.Job(name)]
			return taken && of != w.ID
		},
		Requests: recorded.Requests, Now: recorded.Now, Trust: recorded.Clock,
	}
	for _, h := range recorded.CronJobs {
		if h.Clock.After(in.Recorded) {
			in.Recorded = h.Clock
		}
	}
	if in.History != nil {
		for _, j := range in.History.Jobs {
			if run := recorded.Jobs[w.Job(j.Name)]; run != nil {
				in.Jobs[j.Name] = run
			}
		}
	}
	return in
}

// freeze leaves what may belong to the CronJob as it is, because its record cannot be read.
func (w *Workload) freeze(recorded Recorded, owner owners, plan *Plan) {
	mine := func(id ID) bool {
		_, known := owner[id]
		return !known && id.Kind == Job && id.Key.Namespace == w.Key.Namespace &&
			strings.HasPrefix(id.Key.Name, w.Key.Name+"-")
	}
	for id, run := range recorded.Jobs {
		if mine(id) {
			plan.Jobs[id] = run
		}
	}
	for key, of := range recorded.Exists {
		if name, is := strings.CutPrefix(of, string(Job)+"/"); is &&
			mine(ID{Kind: Job, Key: pod.Key{Namespace: key.Namespace, Name: name}}) {
			plan.Retained[key] = true
		}
	}
}

// make returns a Job of the CronJob, with the metadata that Kubernetes' CronJob controller, or kubectl create job,
// gives it.
func (w *Workload) make(j cronjobs.Job, h *cronjobs.History, t *jobTemplate) *Workload {
	job := &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: string(Job)},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.Key.Namespace, Name: j.Name, Labels: t.Job.Labels, Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "batch/v1", Kind: string(CronJob), Name: w.Key.Name, UID: types.UID(h.UID),
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: t.Job.Spec,
	}
	for key, value := range t.Job.Annotations {
		job.Annotations[key] = value
	}
	if j.Manual {
		job.Annotations[annotationManual] = "manual"
	} else {
		job.Annotations[batchv1.CronJobScheduledTimestampAnnotation] = j.Time.UTC().Format(time.RFC3339)
	}
	made := &Workload{ID: w.Job(j.Name), Object: job, Suffix: w.Suffix, Owner: w, Replicas: int(*job.Spec.Parallelism)}
	p := t.Pod.DeepCopy()
	p.Name = j.Name + w.Suffix
	sum := sha256.Sum256([]byte(string(p.UID) + "\n" + j.Name))
	p.UID = pod.UID(hex.EncodeToString(sum[:16]))
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[Annotation] = made.String()
	made.Template, made.Document = p, string(p.UID)
	return made
}
