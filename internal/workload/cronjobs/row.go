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

// metaTime returns a time of a status; nil for the zero time.
func metaTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t}
}

// Row returns the cells of a CronJob in the table of kubectl get cronjobs.
func Row(c *batchv1.CronJob, now time.Time) []string {
	last := "<none>"
	if t := c.Status.LastScheduleTime; t != nil {
		last = duration.HumanDuration(now.Sub(t.Time))
	}
	return []string{
		c.Spec.Schedule, ptr.Deref(c.Spec.TimeZone, "<none>"), fmt.Sprint(ptr.Deref(c.Spec.Suspend, false)),
		fmt.Sprint(len(c.Status.Active)), last,
	}
}
