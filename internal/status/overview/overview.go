// Package overview says in a few words how workloads are. It decides nothing.
//
// Begin reading at Of.
package overview

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/cronjobs"
	"podrun.io/podrun/internal/workload/jobs"
)

// Workload is a Deployment, a Job or the like.
type Workload struct {
	Kind, Namespace, Name string
	// State says in a few words how far it is, and Reason why it is not well, or more about it.
	State, Reason string
	Well          bool
}

// Of returns the workloads of the desired state. pods are those that exist.
func Of(d manifest.Desired, pods []v1.Pod) []Workload {
	of := map[workload.ID][]*v1.Pod{}
	for i := range pods {
		if id, ok := workload.Of(&pods[i]); ok {
			of[id] = append(of[id], &pods[i])
		}
	}
	all := []Workload{}
	for _, w := range d.Workloads {
		one := Workload{Kind: string(w.Kind), Namespace: w.Key.Namespace, Name: w.Key.Name, Well: true}
		switch o := w.Object.(type) {
		case *batchv1.Job:
			job := o.DeepCopy()
			if h := d.Jobs[w.ID]; h != nil {
				job.Status = h.Status
			}
			showJob(&one, job)
		case *batchv1.CronJob:
			showCronJob(&one, o, d.CronJobs[w.ID])
		default:
			showPods(&one, w, d, of[w.ID])
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Workload) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// showPods shows a workload whose pods run on.
func showPods(one *Workload, w *workload.Workload, d manifest.Desired, pods []*v1.Pod) {
	s := d.Summarize(w, pods, time.Now())
	one.State = fmt.Sprintf("%d/%d ready", s.Ready, s.Desired)
	one.Well = s.Available >= s.Desired
	if s.Updated < s.Current {
		one.Reason = fmt.Sprintf("%d of %d pods have the template of the manifest", s.Updated, s.Current)
	}
	for _, c := range s.Conditions {
		if c.Status == v1.ConditionFalse {
			one.Well, one.Reason = false, c.Message
		}
	}
}

func showJob(one *Workload, job *batchv1.Job) {
	one.State = jobs.State(&job.Status) + " " + jobs.Completions(job)
	for _, c := range job.Status.Conditions {
		failed := c.Type == batchv1.JobFailed || c.Type == batchv1.JobFailureTarget
		if failed && c.Status == v1.ConditionTrue {
			one.Well, one.Reason = false, c.Reason+": "+c.Message
		}
	}
}

func showCronJob(one *Workload, c *batchv1.CronJob, h *cronjobs.History) {
	one.State, one.Reason = "0 active", c.Spec.Schedule
	if h == nil {
		return
	}
	one.State = fmt.Sprintf("%d active", len(h.Active()))
	if ptr.Deref(c.Spec.Suspend, false) {
		one.State = "Suspended"
	}
	if last := h.LastSchedule; !last.IsZero() {
		one.Reason += ", last at " + last.UTC().Format(time.RFC3339)
	}
	if h.Problem.Reason != "" {
		one.Well, one.Reason = false, h.Problem.Reason+": "+h.Problem.Message
	}
}
