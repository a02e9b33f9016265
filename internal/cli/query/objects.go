package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli"
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

// Deployment returns a Deployment of the serve that runs, or ran last, with the status that its pods give it; nil if it
// has none of that name.
func (r *Reader) Deployment(namespace, name string) (*appsv1.Deployment, error) {
	id := workload.ID{Kind: workload.Deployment, Key: pod.Key{Namespace: namespace, Name: name}}
	saved, err := r.saved(id)
	if saved == nil || err != nil {
		return nil, err
	}
	var d appsv1.Deployment
	if err := json.Unmarshal(saved.Object, &d); err != nil {
		return nil, fmt.Errorf("reading %s: %w", id, err)
	}
	pods, err := r.Settled()
	if err != nil {
		return nil, err
	}
	workload.SetStatus(&d, saved.Summarize(&d, PodsOf(pods, id), time.Now()))
	return &d, nil
}

// ObjectWait says for what WaitObjects waits.
type ObjectWait struct {
	// Objects are Jobs and Deployments.
	Objects []workload.ID
	// For is the value of --for: condition=NAME[=VALUE], create or delete.
	For     string
	Timeout time.Duration // 0: check once
}

// WaitObjects waits until each of the objects meets a condition of its own, and prints those that do.
func (r *Reader) WaitObjects(ctx context.Context, out io.Writer, o ObjectWait) error {
	kind, _, _ := strings.Cut(o.For, "=")
	condition, err := ParseCondition(o.For)
	if err != nil || kind != "condition" && kind != "create" && kind != "delete" {
		return &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf(
			"--for %q: of a job it must be condition=NAME[=VALUE], create or delete", o.For)}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, errTimedOut)
	defer cancel()
	pending := slices.Clone(o.Objects)
	err = r.OnChange(ctx, r.dirOf(pending), func() (bool, error) {
		var unmet []workload.ID
		for _, id := range pending {
			has, err := r.conditionsOf(id)
			if err != nil {
				return false, err
			}
			if !condition(has) {
				unmet = append(unmet, id)
				continue
			}
			fmt.Fprintf(out, "%s/%s condition met\n", printed[id.Kind], id.Key.Name)
		}
		pending = unmet
		return len(pending) == 0, nil
	})
	if errors.Is(err, errTimedOut) {
		var names []string
		for _, id := range pending {
			names = append(names, strings.ToLower(string(id.Kind))+"s/"+id.Key.Name)
		}
		return &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("timed out waiting for %s", strings.Join(names, ", "))}
	}
	return err
}

// printed are the kinds as kubectl prints them before a name.
var printed = map[workload.Kind]string{workload.Job: "job.batch", workload.Deployment: "deployment.apps"}

// dirOf returns the directory that changes with the status of the objects: that of Jobs is saved with their manifests,
// that of others follows from their pods.
func (r *Reader) dirOf(objects []workload.ID) string {
	if slices.ContainsFunc(objects, func(id workload.ID) bool { return id.Kind != workload.Job }) {
		return r.Dirs.StatusFiles().Dir()
	}
	return r.Dirs.Run
}

// conditionsOf returns a pod that has the conditions of an object; nil if there is no such object.
func (r *Reader) conditionsOf(id workload.ID) (*v1.Pod, error) {
	p := &v1.Pod{}
	add := func(name string, status v1.ConditionStatus) {
		c := v1.PodCondition{Type: v1.PodConditionType(name), Status: status}
		p.Status.Conditions = append(p.Status.Conditions, c)
	}
	if id.Kind == workload.Deployment {
		d, err := r.Deployment(id.Key.Namespace, id.Key.Name)
		if d == nil || err != nil {
			return nil, err
		}
		for _, c := range d.Status.Conditions {
			add(string(c.Type), c.Status)
		}
		complete, wanted := v1.ConditionFalse, *d.Spec.Replicas
		if s := d.Status; s.UpdatedReplicas == wanted && s.Replicas == wanted && s.AvailableReplicas == wanted {
			complete = v1.ConditionTrue // as kubectl rollout status sees it
		}
		add("Complete", complete)
		return p, nil
	}
	job, err := r.Job(id.Key.Namespace, id.Key.Name)
	if job == nil || err != nil {
		return nil, err
	}
	for _, c := range job.Status.Conditions {
		add(string(c.Type), c.Status)
	}
	return p, nil
}
