package containerd

import (
	"context"
	"strings"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/containers"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/instance"
	"podrun.io/podrun/internal/runtime/containerd/shimpool"
)

// Lister observes instances. Its methods may be called concurrently.
type Lister struct {
	client *daemon.Client
	cache  *instance.Cache
	lookup *instance.Lookup
	files  *instance.Files
	shims  *shimpool.Pool
	// sandboxesDir is the directory of the sandboxes' files.
	sandboxesDir string
}

// ListContainers implements runtime.Driver. It makes two calls to containerd, however many
// instances there are. A task whose shim does not answer containerd may be missing from the list;
// an inspection of its pod returns the error.
func (l *Lister) ListContainers(ctx context.Context) (map[pod.Key][]pod.Container, error) {
	ctx = l.client.Context(ctx)
	l.shims.Reap()
	// List the tasks after the containers: an instance that had a task when the containers were
	// listed and has none now was reaped.
	found, err := l.client.ContainerService().List(ctx)
	if err != nil {
		return nil, daemon.Mapped("listing containers", err)
	}
	answer, err := l.client.TaskService().List(ctx, &tasks.ListTasksRequest{})
	if err != nil {
		return nil, daemon.Mapped("listing tasks", err)
	}
	byID := make(map[string]*task.Process, len(answer.Tasks))
	for _, t := range answer.Tasks {
		byID[t.ID] = t
	}
	out := map[pod.Key][]pod.Container{}
	for _, c := range found {
		if !l.lookup.Ours(c) {
			continue
		}
		key := instance.KeyOf(c.Labels)
		l.cache.Observed(c.ID, key)
		out[key] = append(out[key], l.observe(c, byID[c.ID]))
	}
	l.cache.Listed(time.Now())
	return out, nil
}

// InspectContainers implements runtime.Driver.
func (l *Lister) InspectContainers(ctx context.Context, key pod.Key, ids []string) ([]pod.Container, error) {
	ctx = l.client.Context(ctx)
	found, err := l.lookup.OfPod(ctx, key, ids)
	if err != nil {
		return nil, err
	}
	out := make([]pod.Container, 0, len(found))
	for _, c := range found {
		t, err := l.lookup.Task(ctx, c.ID)
		if err != nil {
			return nil, err
		}
		l.cache.Observed(c.ID, key)
		out = append(out, l.observe(c, t))
	}
	return out, nil
}

// sandboxOf returns the ID of the sandbox in which the instance was created, from the container's
// record or from the paths in its spec.
func (l *Lister) sandboxOf(c containers.Container) string {
	if c.SandboxID != "" || c.Spec == nil {
		return c.SandboxID
	}
	_, rest, _ := strings.Cut(string(c.Spec.GetValue()), `"`+l.sandboxesDir+"/")
	id, _, _ := strings.Cut(rest, "/")
	return id
}

// observe returns the state of the instance from its container and its task; t is nil if it has no
// task.
func (l *Lister) observe(c containers.Container, t *task.Process) pod.Container {
	out := instance.Identity(c)
	out.SandboxID = l.sandboxOf(c)
	if t == nil {
		out.State, out.Reaped = pod.Created, true
		return out
	}
	switch t.Status {
	case task.Status_RUNNING, task.Status_PAUSED, task.Status_PAUSING:
		out.State, out.PID = pod.Running, int(t.Pid)
	case task.Status_CREATED:
		out.State = pod.Created
		if l.lookup.Runs(t) {
			out.State, out.PID = pod.Running, int(t.Pid)
		}
	case task.Status_STOPPED:
		if l.lookup.NeverBegan(t) {
			out.State = pod.Created
			break
		}
		out.State, out.ExitCode, out.FinishedAt = pod.Exited, int(t.ExitStatus), t.ExitedAt.AsTime()
		out.Reason = pod.ExitReason(out.ExitCode, l.oomKilled(c, out.ExitCode))
		out.Message = l.files.TerminationMessage(out)
	default:
		out.State = pod.Unknown
	}
	return out
}

// oomKilled reports whether the kernel killed a process of the instance because memory ran out. The instance has ended
// with code. What is found is cached, because the cgroup and the kernel's log do not keep it.
func (l *Lister) oomKilled(c containers.Container, code int) bool {
	if l.cache.OOM(c.ID) {
		return true
	}
	killed, known := instance.OOMKilled(c)
	if !known && code != 0 {
		killed = instance.KernelLogOOM(c)
	}
	if killed {
		l.cache.ObservedOOM(c.ID)
	}
	return killed
}
