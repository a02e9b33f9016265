package request

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
	"podrun.io/podrun/internal/workload"
)

// Restart restarts what args name, POD, POD CONTAINER, TYPE/NAME or TYPE NAME: containers of a pod, or of the pods of a
// workload one after the other: each when the one before it is available, the last one of a StatefulSet first. It
// returns when they are; with a Timeout of 0 it waits for nothing.
func (r Restarter) Restart(ctx context.Context, o RestartOptions, args []string) error {
	args, err := r.Reader.JoinType(o.Namespace, args)
	switch {
	case err != nil:
		return err
	case len(args) == 2 && o.Container != "":
		err = errors.New("name the container once: as an argument or with --container")
		return cli.UsageError("podrun restart", err)
	case len(args) == 2:
		o.Container = args[1]
	}
	o.Pod = args[0]
	id, is := query.WorkloadName(o.Namespace, o.Pod)
	if !is {
		return r.Pod(ctx, o)
	}
	if id.Kind == workload.Job || id.Kind == workload.CronJob {
		return &cli.Error{
			Code: cli.ExitUsage,
			Err:  fmt.Errorf("%s cannot be restarted: its pods are to end", o.Pod),
			Hint: "podrun restart takes pods, and workloads whose pods go on running",
		}
	}
	objects, missing, err := r.Reader.Objects(id.Kind, query.Selection{Namespace: o.Namespace}, []string{id.Key.Name})
	if err := errors.Join(append(missing, err)...); err != nil {
		return err
	}
	pods := slices.DeleteFunc(objects[0].Pods, func(p *v1.Pod) bool {
		return p.DeletionTimestamp != nil || status.Ended(p)
	})
	if len(pods) == 0 {
		return fmt.Errorf("%s has no pods now", o.Pod)
	}
	slices.SortFunc(pods, func(a, b *v1.Pod) int { // web-10 is after web-9
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	if id.Kind == workload.StatefulSet {
		slices.Reverse(pods)
	}
	settled := workload.MinReady(objects[0].Object)
	for i, p := range pods {
		one := o
		one.Pod = p.Name
		err := r.Pod(ctx, one)
		if err == nil && o.Timeout > 0 {
			err = r.available(ctx, p, settled, o.Timeout)
		}
		if err != nil {
			return untouched(err, pods[i+1:])
		}
	}
	return nil
}

// untouched adds to an error which pods were therefore not restarted.
func untouched(err error, left []*v1.Pod) error {
	if len(left) == 0 {
		return err
	}
	failed := &cli.Error{Code: cli.ExitFailed}
	if was := (*cli.Error)(nil); errors.As(err, &was) {
		failed.Code, failed.Hint = was.Code, was.Hint
	}
	names := ""
	for _, p := range left {
		names += " " + p.Name
	}
	failed.Err = fmt.Errorf("%w; not restarted:%s", err, names)
	return failed
}

// available waits until a pod is ready, and has been for a while.
func (r Restarter) available(ctx context.Context, p *v1.Pod, settled, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout+settled, errLate)
	defer cancel()
	var since time.Time
	err := r.Reader.OnChange(ctx, r.Reader.Dirs.StatusFiles().Dir(), func() (bool, error) {
		now, err := r.current(p)
		if err != nil {
			return false, err
		}
		if !pod.IsReady(now) {
			since = time.Time{}
			return false, nil
		}
		if since.IsZero() {
			since = time.Now()
		}
		return time.Since(since) >= settled, nil
	})
	if errors.Is(err, errLate) {
		return &cli.Error{
			Code: cli.ExitFailed,
			Err:  fmt.Errorf("pod %s is not ready %s after its restart", p.Name, timeout),
			Hint: "podrun describe pod " + query.Target(p, "") + " says why",
		}
	}
	return err
}
