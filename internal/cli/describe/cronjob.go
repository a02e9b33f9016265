package describe

import (
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"

	"podrun.io/podrun/internal/workload"
)

func (d *Printer) cronJob(c *batchv1.CronJob) {
	s, unset := c.Spec, "<unset>"
	schedule := s.Schedule
	if c.Annotations[workload.AnnotationSchedule] == workload.ScheduleBoot {
		schedule = "once in each boot"
	}
	d.line(0, "Name", c.Name)
	d.line(0, "Namespace", c.Namespace)
	d.line(0, "Labels", pairs(c.Labels))
	d.line(0, "Schedule", schedule)
	d.line(0, "Time Zone", ptr.Deref(s.TimeZone, unset))
	d.line(0, "Concurrency Policy", string(s.ConcurrencyPolicy))
	d.line(0, "Suspend", fmt.Sprint(ptr.Deref(s.Suspend, false)))
	deadline := unset
	if s.StartingDeadlineSeconds != nil {
		deadline = fmt.Sprintf("%ds", *s.StartingDeadlineSeconds)
	}
	d.line(0, "Starting Deadline Seconds", deadline)
	d.line(0, "Successful Job History Limit", fmt.Sprint(ptr.Deref(s.SuccessfulJobsHistoryLimit, 0)))
	d.line(0, "Failed Job History Limit", fmt.Sprint(ptr.Deref(s.FailedJobsHistoryLimit, 0)))
	d.line(0, "Last Schedule Time", when(c.Status.LastScheduleTime))
	d.line(0, "Last Successful Time", when(c.Status.LastSuccessfulTime))
	active := []string{}
	for _, j := range c.Status.Active {
		active = append(active, j.Name)
	}
	d.line(0, "Active Jobs", strings.Join(active, ", "))
}
