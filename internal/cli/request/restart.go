// Package request requests something of the process that runs pods, and waits for it: restarts of containers of the
// owner of their pod, for podrun restart and the images commands, and of serve a Job from a CronJob, for podrun create
// job.
//
// It restarts and creates nothing itself. Begin reading at Restarter.Pod and Creator.Job.
package request

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
	"podrun.io/podrun/internal/status/summary"
)

// Restarts is where restarts are requested.
type Restarts interface {
	Post(q pod.RestartRequest) error
	Pending(q pod.RestartRequest) bool
	Remove(q pod.RestartRequest)
}

// Restarter restarts containers.
type Restarter struct {
	Streams  cli.Streams
	Reader   *query.Reader
	Requests Restarts
	// Accept is how long the owner of the pod may take to accept a request.
	Accept time.Duration
}

// RestartOptions say what is restarted.
type RestartOptions struct {
	Namespace string
	// Pod is the name of the pod; Restart sets it.
	Pod string
	// Container is the name of a container; "" restarts all that run or wait for a restart.
	Container string
	// Timeout is the longest time until the containers run again. 0: do not wait for that.
	Timeout time.Duration
}

// errNotAccepted and errLate are the ends of the two waits of Pod.
var errNotAccepted, errLate = errors.New("not accepted in time"), errors.New("not running again in time")

// Pod restarts containers of a pod, and returns when they run again.
func (r Restarter) Pod(ctx context.Context, o RestartOptions) error {
	p, err := r.Reader.Named(o.Namespace, o.Pod)
	if err != nil {
		return err
	}
	requests, err := of(p, o.Container)
	if err != nil {
		return err
	}
	if owned, known := r.Reader.Owners.Kept(pod.KeyOf(p)); !owned && known {
		return &cli.Error{
			Code: cli.ExitFailed,
			Err:  fmt.Errorf("pod %s cannot be restarted: no podrun process runs it", p.Name),
			Hint: "podrun serve takes up the pods of its manifests",
		}
	}
	for _, q := range requests {
		if err := r.Requests.Post(q); err != nil {
			return err
		}
	}
	if err := r.accepted(ctx, p, requests); err != nil {
		return err
	}
	if o.Timeout > 0 {
		if err := r.running(ctx, p, requests, o.Timeout); err != nil {
			return err
		}
	}
	what := "pod/" + p.Name
	if o.Container != "" {
		what += " container " + o.Container
	}
	_, err = fmt.Fprintln(r.Streams.Out, what+" restarted")
	return err
}

// of returns the requests for the container of the pod, or for all of its containers that run or wait.
func of(p *v1.Pod, container string) ([]pod.RestartRequest, error) {
	if status.Ended(p) {
		return nil, &cli.Error{
			Code: cli.ExitFailed,
			Err:  fmt.Errorf("pod %s has completed (%s): only a pod that runs can be restarted", p.Name, p.Status.Phase),
			Hint: "podrun once runs it again; podrun serve does after an edit of its manifest",
		}
	}
	roles := summary.Roles(p)
	if container != "" {
		role, err := query.Container(nil, p, container)
		if err != nil {
			return nil, err
		}
		roles = []summary.Role{role}
	}
	var requests []pod.RestartRequest
	for _, role := range roles {
		requests = append(requests, ofContainer(p, role)...)
	}
	if len(requests) == 0 {
		return nil, fmt.Errorf("container %q in pod %s has completed: only one that runs or waits can be restarted",
			container, p.Name)
	}
	return requests, nil
}

// ofContainer returns the requests for one container. One that waits may wait for the restart of its last instance, and
// for something else that failed.
func ofContainer(p *v1.Pod, role summary.Role) []pod.RestartRequest {
	q := pod.RestartRequest{UID: p.UID, Container: role.Container.Name}
	if role.Status == nil || role.Status.State.Terminated != nil {
		return nil
	}
	instance := q
	instance.ID = role.InstanceID()
	switch {
	case role.Status.State.Running != nil:
		return []pod.RestartRequest{instance}
	case instance.ID != "":
		return []pod.RestartRequest{instance, q}
	default:
		return []pod.RestartRequest{q}
	}
}

// accepted waits until the pod's owner has answered the requests. Those that it does not answer are withdrawn.
func (r Restarter) accepted(ctx context.Context, p *v1.Pod, requests []pod.RestartRequest) error {
	ctx, cancel := context.WithTimeoutCause(ctx, r.Accept, errNotAccepted)
	defer cancel()
	err := r.Reader.OnChange(ctx, r.Reader.Dirs.StatusFiles().Dir(), func() (bool, error) {
		for _, q := range requests {
			if r.Requests.Pending(q) {
				_, err := r.current(p)
				return false, err
			}
		}
		return true, nil
	})
	if err == nil {
		return nil
	}
	for _, q := range requests {
		r.Requests.Remove(q)
	}
	if errors.Is(err, errNotAccepted) {
		return fmt.Errorf("the podrun that runs pod %s has not answered within %s; the request is withdrawn",
			p.Name, r.Accept)
	}
	return err
}

// current returns the pod as it is now. It is an error if it has been removed or replaced.
func (r Restarter) current(p *v1.Pod) (*v1.Pod, error) {
	now, err := r.Reader.Named(p.Namespace, p.Name)
	var notFound *query.NotFoundError
	switch {
	case errors.As(err, &notFound):
		return nil, fmt.Errorf("pod %s was removed", p.Name)
	case err == nil && now.UID != p.UID:
		return nil, fmt.Errorf("pod %s was replaced by another revision, because its manifest changed", p.Name)
	}
	return now, err
}

// running waits until each instance that is restarted has a successor that runs or has run.
func (r Restarter) running(ctx context.Context, p *v1.Pod, requests []pod.RestartRequest, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errLate)
	defer cancel()
	var waiting string
	err := r.Reader.OnChange(ctx, r.Reader.Dirs.StatusFiles().Dir(), func() (bool, error) {
		now, err := r.current(p)
		if err != nil {
			return false, err
		}
		waiting = ""
		for _, role := range summary.Roles(now) {
			for _, q := range requests {
				if q.Container == role.Container.Name && q.ID != "" && !succeeded(role, q.ID) {
					waiting = strings.TrimSpace(q.Container + " " + reason(role))
				}
			}
		}
		if waiting != "" && status.Ended(now) {
			return false, fmt.Errorf("pod %s has ended (%s) before the restart", p.Name, now.Status.Phase)
		}
		return waiting == "", nil
	})
	if errors.Is(err, errLate) {
		return &cli.Error{
			Code: cli.ExitFailed,
			Err:  fmt.Errorf("container %s of pod %s does not run again after %s", waiting, p.Name, timeout),
			Hint: "podrun describe pod " + query.Target(p, "") + " says why; the restart goes on",
		}
	}
	return err
}

// succeeded reports that another instance than the one with the ID runs or has run.
func succeeded(role summary.Role, id string) bool {
	if role.InstanceID() == id || role.InstanceID() == "" {
		return false
	}
	waiting := role.Status.State.Waiting
	return waiting == nil || waiting.Reason == "CrashLoopBackOff"
}

// reason returns why the container waits, in parentheses.
func reason(role summary.Role) string {
	if role.Status == nil || role.Status.State.Waiting == nil {
		return ""
	}
	return "(" + role.Status.State.Waiting.Reason + ")"
}

// Images ends the waits of all containers for one of the images. Nothing is done about pods that no process runs.
func (r Restarter) Images(same func(image string) bool) error {
	pods, err := r.Reader.Pods()
	var all error
	for _, p := range pods {
		for _, role := range summary.Roles(p) {
			if role.Status == nil || role.Status.State.Waiting == nil || !waitsForImage(p, role, same) {
				continue
			}
			if owned, _ := r.Reader.Owners.Kept(pod.KeyOf(p)); owned {
				all = errors.Join(all, r.Requests.Post(pod.RestartRequest{UID: p.UID, Container: role.Container.Name}))
			}
		}
	}
	return errors.Join(err, all)
}

// waitsForImage reports that a container that waits has the image, or that it mounts a volume of it.
func waitsForImage(p *v1.Pod, role summary.Role, same func(image string) bool) bool {
	if same(role.Container.Image) {
		return true
	}
	for _, v := range p.Spec.Volumes {
		if v.Image != nil && same(v.Image.Reference) {
			return true
		}
	}
	return false
}
