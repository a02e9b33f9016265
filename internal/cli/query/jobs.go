package query

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
)

// Job returns a Job of the serve that runs, or ran last; nil if it has none of that name.
func (r *Reader) Job(namespace, name string) (*batchv1.Job, error) {
	saved, err := r.saved(workload.ID{Kind: workload.Job, Key: pod.Key{Namespace: namespace, Name: name}})
	if saved == nil || err != nil {
		return nil, err
	}
	job := saved.Job()
	if job == nil {
		return nil, fmt.Errorf("reading the status of job %q failed", name)
	}
	return job, nil
}

// JobWait says for what WaitJobs waits.
type JobWait struct {
	Jobs []pod.Key
	// For is the value of --for: condition=NAME[=VALUE], create or delete.
	For     string
	Timeout time.Duration // 0: check once
}

// WaitJobs waits until each of the Jobs meets a condition, and prints those that do.
func (r *Reader) WaitJobs(ctx context.Context, out io.Writer, o JobWait) error {
	kind, _, _ := strings.Cut(o.For, "=")
	condition, err := ParseCondition(o.For)
	if err != nil || kind != "condition" && kind != "create" && kind != "delete" {
		return &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf(
			"--for %q: of a job it must be condition=NAME[=VALUE], create or delete", o.For)}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, errTimedOut)
	defer cancel()
	pending := slices.Clone(o.Jobs)
	err = r.OnChange(ctx, r.Dirs.Run, func() (bool, error) {
		var unmet []pod.Key
		for _, key := range pending {
			job, err := r.Job(key.Namespace, key.Name)
			if err != nil {
				return false, err
			}
			if !condition(conditionsOf(job)) {
				unmet = append(unmet, key)
				continue
			}
			fmt.Fprintf(out, "job.batch/%s condition met\n", key.Name)
		}
		pending = unmet
		return len(pending) == 0, nil
	})
	if errors.Is(err, errTimedOut) {
		var names []string
		for _, key := range pending {
			names = append(names, "jobs/"+key.Name)
		}
		return &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("timed out waiting for %s", strings.Join(names, ", "))}
	}
	return err
}

// conditionsOf returns a pod that has the conditions of a Job; nil if there is no Job.
func conditionsOf(job *batchv1.Job) *v1.Pod {
	if job == nil {
		return nil
	}
	p := &v1.Pod{}
	for _, c := range job.Status.Conditions {
		p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{
			Type: v1.PodConditionType(c.Type), Status: c.Status,
		})
	}
	return p
}

// Jobs returns the Jobs of a selection and those that the arguments `job NAME...` or `job/NAME...` name; none if they
// name something else.
func (r *Reader) Jobs(s Selection, args []string) ([]*batchv1.Job, error) {
	keys := slices.Clone(s.Jobs)
	if kind, names, _ := WorkloadArgs(args); kind == workload.Job {
		for _, name := range names {
			keys = append(keys, pod.Key{Namespace: s.Namespace, Name: name})
		}
	}
	var all []*batchv1.Job
	for _, key := range keys {
		job, err := r.Job(key.Namespace, key.Name)
		if err == nil && job == nil {
			err = WorkloadNotFound(workload.ID{Kind: workload.Job, Key: key})
		}
		if err != nil {
			return nil, err
		}
		all = append(all, job)
	}
	return all, nil
}
