package describe

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/cronjobs"
)

func (d *Printer) cronJob(o query.Object, c *batchv1.CronJob) {
	s, unset := c.Spec, "<unset>"
	schedule := s.Schedule
	if c.Annotations[workload.AnnotationSchedule] == workload.ScheduleBoot {
		schedule = "once in each boot"
	}
	d.line(0, "Name", c.Name)
	d.line(0, "Namespace", c.Namespace)
	d.origin(o)
	d.line(0, "Labels", pairs(c.Labels))
	d.line(0, "Schedule", schedule)
	d.line(0, "Time Zone", ptr.Deref(s.TimeZone, unset))
	d.line(0, "Concurrency Policy", string(s.ConcurrencyPolicy))
	d.line(0, "Suspend", cronjobs.Boolean(ptr.Deref(s.Suspend, false)))
	deadline := unset
	if s.StartingDeadlineSeconds != nil {
		deadline = fmt.Sprintf("%ds", *s.StartingDeadlineSeconds)
	}
	d.line(0, "Starting Deadline Seconds", deadline)
	d.line(0, "Successful Job History Limit", fmt.Sprint(ptr.Deref(s.SuccessfulJobsHistoryLimit, 0)))
	d.line(0, "Failed Job History Limit", fmt.Sprint(ptr.Deref(s.FailedJobsHistoryLimit, 0)))
	if next := next(c); !next.IsZero() {
		d.line(0, "Next Schedule Time", when(&next))
	}
	d.line(0, "Last Schedule Time", when(c.Status.LastScheduleTime))
	d.line(0, "Last Successful Time", when(c.Status.LastSuccessfulTime))
	active := []string{}
	for _, j := range c.Status.Active {
		active = append(active, j.Name)
	}
	d.line(0, "Active Jobs", strings.Join(active, ", "))
}

// next returns the next time of a CronJob; the zero time if there is none, or it has no schedule.
func next(c *batchv1.CronJob) metav1.Time {
	if c.Annotations[workload.AnnotationSchedule] == workload.ScheduleBoot {
		return metav1.Time{}
	}
	now := time.Now()
	h := &cronjobs.History{Created: cmp.Or(c.CreationTimestamp.Time, now)}
	if last := c.Status.LastScheduleTime; last != nil {
		h.LastSchedule = last.Time
	}
	at := cronjobs.Next(c, h, now)
	if !at.IsZero() {
		at = at.Local() // as the other times
	}
	return metav1.NewTime(at)
}
