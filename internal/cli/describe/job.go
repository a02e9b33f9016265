package describe

import (
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status/summary"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/jobs"
)

// jobEvents prints what Kubernetes' Job controller would have recorded as events, in its words
// (pkg/controller/job/job_controller.go), as far as the Job's conditions and its pods say it.
func (d *Printer) jobEvents(job *batchv1.Job, pods []*v1.Pod) error {
	type row struct {
		kind, reason, message string
		at                    metav1.Time
	}
	id := workload.ID{Kind: workload.Job, Key: pod.Key{Namespace: job.Namespace, Name: job.Name}}
	var rows []row
	for _, p := range pods {
		if of, _ := workload.Of(p); of == id {
			at := ptr.Deref(p.Status.StartTime, p.CreationTimestamp)
			rows = append(rows, row{v1.EventTypeNormal, "SuccessfulCreate", "Created pod: " + p.Name, at})
		}
	}
	for _, c := range job.Status.Conditions {
		switch is := c.Status == v1.ConditionTrue; {
		case c.Type == batchv1.JobComplete && is:
			rows = append(rows, row{v1.EventTypeNormal, "Completed", "Job completed", c.LastTransitionTime})
		case c.Type == batchv1.JobFailed && is:
			rows = append(rows, row{v1.EventTypeWarning, c.Reason, c.Message, c.LastTransitionTime})
		case c.Type == batchv1.JobSuspended && is:
			rows = append(rows, row{v1.EventTypeNormal, "Suspended", "Job suspended", c.LastTransitionTime})
		case c.Type == batchv1.JobSuspended:
			rows = append(rows, row{v1.EventTypeNormal, "Resumed", "Job resumed", c.LastTransitionTime})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	slices.SortStableFunc(rows, func(a, b row) int { return a.at.Compare(b.at.Time) })
	fmt.Fprintln(d.Out, "Events:")
	table := [][]string{{"  Type", "Reason", "Age", "Message"}}
	for _, r := range rows {
		age := printers.Age(r.at.Time, time.Now())
		table = append(table, []string{"  " + r.kind, r.reason, age, summary.PlainLine(r.message)})
	}
	return printers.Rows(d.Out, table...)
}

func (d *Printer) job(o query.Object, job *batchv1.Job) {
	s, status := job.Spec, job.Status
	number := func(n *int32) string {
		if n == nil {
			return "<unset>"
		}
		return fmt.Sprint(*n)
	}
	d.line(0, "Name", job.Name)
	d.line(0, "Namespace", job.Namespace)
	d.origin(o)
	d.line(0, "Run", string(job.UID))
	d.line(0, "Labels", pairs(job.Labels))
	d.line(0, "Parallelism", number(s.Parallelism))
	d.line(0, "Completions", number(s.Completions))
	d.line(0, "Completion Mode", string(ptr.Deref(s.CompletionMode, batchv1.NonIndexedCompletion)))
	d.line(0, "Suspend", fmt.Sprint(ptr.Deref(s.Suspend, false)))
	d.line(0, "Backoff Limit", number(s.BackoffLimit))
	if s.ActiveDeadlineSeconds != nil {
		d.line(0, "Active Deadline Seconds", fmt.Sprintf("%ds", *s.ActiveDeadlineSeconds))
	}
	if s.TTLSecondsAfterFinished != nil {
		d.line(0, "TTL Seconds After Finished", fmt.Sprint(*s.TTLSecondsAfterFinished))
	}
	d.line(0, "Start Time", when(status.StartTime))
	d.line(0, "Completed At", when(status.CompletionTime))
	if took, began := jobs.Duration(&status, time.Now()); began {
		d.line(0, "Duration", duration.HumanDuration(took))
	}
	state := jobs.State(&status)
	if o.PodsOnly {
		state, _ = jobs.CellsOfPods(&status)
	}
	d.line(0, "Status", state)
	d.line(0, "Pods Statuses", fmt.Sprintf("%d Active (%d Ready) / %d Succeeded / %d Failed",
		status.Active, ptr.Deref(status.Ready, 0), status.Succeeded, status.Failed))
	d.line(0, "Completed Indexes", status.CompletedIndexes)
	d.line(0, "Failed Indexes", ptr.Deref(status.FailedIndexes, ""))
	var conditions []string
	for _, c := range status.Conditions {
		text := fmt.Sprintf("%s=%s %s %s", c.Type, c.Status, c.Reason, c.Message)
		conditions = append(conditions, strings.TrimSpace(text))
	}
	d.line(0, "Conditions", strings.Join(conditions, "\n"))
}
