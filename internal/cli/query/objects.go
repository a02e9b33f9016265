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
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/revisions"
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
	d, _, err := deploymentOf(r, workload.ID{Kind: workload.Deployment, Key: pod.Key{Namespace: namespace, Name: name}})
	return d, err
}

// deploymentOf returns what Reader.Deployment does, and the pods.
func deploymentOf(r *Reader, id workload.ID) (*appsv1.Deployment, []*v1.Pod, error) {
	saved, err := r.saved(id)
	if saved == nil || err != nil {
		return nil, nil, err
	}
	var d appsv1.Deployment
	if err := json.Unmarshal(saved.Object, &d); err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w", id, err)
	}
	all, err := r.Settled()
	if err != nil {
		return nil, nil, err
	}
	pods := PodsOf(all, id)
	workload.SetStatus(&d, saved.Summarize(&d, pods, time.Now()))
	return &d, pods, nil
}

// ObjectWait says for what WaitObjects waits.
type ObjectWait struct {
	// Objects are Jobs, CronJobs and Deployments.
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
		err = fmt.Errorf("--for %q: of a job it must be condition=NAME[=VALUE], create or delete", o.For)
		return &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	if cron := o.Objects[0].Kind == workload.CronJob; cron && kind == "condition" {
		return &cli.Error{Code: cli.ExitUsage, Err: errors.New("a CronJob has no conditions: wait for one of its Jobs")}
	}
	complete := isCondition(o.For, conditionComplete)
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
				if complete && has != nil && isRolledBack(has) {
					return false, rolledBack(id.String(), has, string(id.Kind)+"/"+id.Key.Name)
				}
				unmet = append(unmet, id)
				continue
			}
			fmt.Fprintf(out, "%s/%s condition met\n", Resource(id.Kind), id.Key.Name)
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

// dirOf returns the directory that changes with the status of the objects: that of Jobs is saved with their manifests,
// that of others follows from their pods.
func (r *Reader) dirOf(objects []workload.ID) string {
	if slices.ContainsFunc(objects, func(id workload.ID) bool { return id.Kind == workload.Deployment }) {
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
		d, pods, err := deploymentOf(r, id)
		if d == nil || err != nil {
			return nil, err
		}
		for _, c := range d.Status.Conditions {
			add(string(c.Type), c.Status)
		}
		complete, back := completeness(d, pods)
		add(conditionComplete, complete)
		p.Annotations = map[string]string{manifest.AnnotationRolledBack: back}
		return p, nil
	}
	saved, err := r.saved(id)
	if saved == nil || err != nil {
		return nil, err
	}
	if job := saved.Job(); job != nil { // a CronJob has no conditions
		for _, c := range job.Status.Conditions {
			add(string(c.Type), c.Status)
		}
	}
	return p, nil
}

// conditionComplete is the condition of a Deployment whose update has ended; Kubernetes has none of its own.
const conditionComplete = "Complete"

// completeness reports that an update of a Deployment, or going back from it, has ended: all of its pods have the
// template that is wanted and are available, as kubectl rollout status sees it, and no others are left. back is why
// the pods have a former template, if they do.
func completeness(d *appsv1.Deployment, pods []*v1.Pod) (complete v1.ConditionStatus, back string) {
	former := int32(0)
	for _, p := range pods {
		if why := p.Annotations[manifest.AnnotationRolledBack]; why != "" && p.DeletionTimestamp == nil {
			former, back = former+1, why
		}
	}
	s, wanted := d.Status, *d.Spec.Replicas
	if back == revisions.Undone {
		s.UpdatedReplicas = former
	}
	if s.UpdatedReplicas == wanted && s.Replicas == wanted && s.AvailableReplicas == wanted &&
		*s.TerminatingReplicas == 0 {
		return v1.ConditionTrue, back
	}
	return v1.ConditionFalse, back
}
