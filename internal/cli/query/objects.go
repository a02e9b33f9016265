package query

import (
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
	"podrun.io/podrun/internal/workload"
)

// Job returns a Job of the serve that runs, or ran last; nil if it has none of that name.
func (r *Reader) Job(namespace, name string) (*batchv1.Job, error) {
	return object(r, workload.Job, namespace, name, status.Workload.Job)
}

// CronJob returns a CronJob of the serve that runs, or ran last; nil if it has none of that name.
func (r *Reader) CronJob(namespace, name string) (*batchv1.CronJob, error) {
	return object(r, workload.CronJob, namespace, name, status.Workload.CronJob)
}

// object returns what is saved of a workload as its kind; nil if there is none of that name.
func object[T any](
	r *Reader, kind workload.Kind, namespace, name string, as func(status.Workload) *T,
) (*T, error) {
	saved, err := r.saved(workload.ID{Kind: kind, Key: pod.Key{Namespace: namespace, Name: name}})
	if saved == nil || err != nil {
		return nil, err
	}
	o := as(*saved)
	if o == nil {
		return nil, fmt.Errorf("reading the status of %s %q failed", strings.ToLower(string(kind)), name)
	}
	return o, nil
}
