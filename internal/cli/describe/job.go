package describe

import (
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"podrun.io/podrun/internal/workload/jobs"
)

// Jobs prints the details of Jobs, without their pods.
func (d *Printer) Jobs(all []*batchv1.Job) {
	for i, job := range all {
		if i > 0 {
			fmt.Fprintln(d.Out)
		}
		d.job(job)
	}
}

func (d *Printer) job(job *batchv1.Job) {
	s, status := job.Spec, job.Status
	number := func(n *int32) string {
		if n == nil {
			return "<unset>"
		}
		return fmt.Sprint(*n)
	}
	d.line(0, "Name", job.Name)
	d.line(0, "Namespace", job.Namespace)
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
	d.line(0, "Status", jobs.State(&status))
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
