package cronjobs

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"podrun.io/podrun/internal/workload/schedule"
)

// SetStatus sets the status of a CronJob. uid returns the UID of one of its Jobs.
func SetStatus(c *batchv1.CronJob, h *History, uid func(job string) string) {
	c.Status = batchv1.CronJobStatus{}
	for _, j := range h.Active() {
		c.Status.Active = append(c.Status.Active, v1.ObjectReference{
			APIVersion: "batch/v1", Kind: "Job", Namespace: c.Namespace, Name: j.Name, UID: types.UID(uid(j.Name)),
		})
	}
	c.Status.LastScheduleTime, c.Status.LastSuccessfulTime = metaTime(h.LastSchedule), metaTime(h.LastSuccessful)
}

// Next returns the next time of a CronJob after now; the zero time if there is none, or it is suspended.
func Next(c *batchv1.CronJob, h *History, now time.Time) time.Time {
	times, err := schedule.New(c.Spec.Schedule, c.Spec.TimeZone)
	if err != nil || ptr.Deref(c.Spec.Suspend, false) || h.Created.IsZero() {
		return time.Time{}
	}
	since := h.Created
	if h.LastSchedule.After(since) {
		since = h.LastSchedule
	}
	if since.After(now) {
		since = now
	}
	return times.Next(since, now)
}

// metaTime returns a time of a status; nil for the zero time.
func metaTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t}
}

// Boolean returns a boolean as kubectl prints it: True or False.
func Boolean(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

// Row returns the cells of a CronJob in the table of kubectl get cronjobs.
func Row(c *batchv1.CronJob, now time.Time) []string {
	last := "<none>"
	if t := c.Status.LastScheduleTime; t != nil {
		last = duration.HumanDuration(now.Sub(t.Time))
	}
	return []string{
		c.Spec.Schedule, ptr.Deref(c.Spec.TimeZone, "<none>"), Boolean(ptr.Deref(c.Spec.Suspend, false)),
		fmt.Sprint(len(c.Status.Active)), last,
	}
}
