package instance

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/containers"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
)

// Lookup reads the records and tasks of instances. Call its methods with a context of the client's.
type Lookup struct {
	client *daemon.Client
	cache  *Cache
	// runcState is the directory of runc's state.
	runcState string
	// root is podrun's root directory.
	root string
}

// NewLookup returns a Lookup. runcState is the directory of runc's state, root that of podrun.
func NewLookup(client *daemon.Client, cache *Cache, runcState, root string) *Lookup {
	return &Lookup{client, cache, runcState, root}
}

// Ours reports whether a podrun with our root directory created the container.
func (l *Lookup) Ours(c containers.Container) bool { return Ours(c) && !OfAnother(c.Labels, l.root) }

// Runs reports whether the program of a task runs that containerd calls created. If containerd dies
// during a start, the shim gives the start up; the program may run all the same.
func (l *Lookup) Runs(t *task.Process) bool {
	began, known := began(l.runcState, t.ID)
	return known && began || IsInside(int(t.Pid))
}

// NeverBegan reports whether it is certain that a task ended before the container's program began.
func (l *Lookup) NeverBegan(t *task.Process) bool {
	began, known := began(l.runcState, t.ID)
	return known && !began
}

// Record returns the record of one of podrun's instances. A missing record is not an error; the
// record of a container that is not podrun's is one.
func (l *Lookup) Record(ctx context.Context, id string) (c containers.Container, there bool, err error) {
	c, err = l.client.ContainerService().Get(ctx, id)
	if daemon.IsNotFound(err) {
		return c, false, nil
	}
	if err != nil {
		return c, false, daemon.Mapped("looking for container "+id, err)
	}
	if !l.Ours(c) {
		return c, false, fmt.Errorf("container %s is not podrun's", id)
	}
	return c, true, nil
}

// Task returns the instance's task, or nil if it has none.
func (l *Lookup) Task(ctx context.Context, id string) (*task.Process, error) {
	answer, err := l.client.TaskService().Get(ctx, &tasks.GetRequest{ContainerID: id})
	if daemon.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, daemon.Mapped("looking for the task of "+id, err)
	}
	return answer.Process, nil
}

// OfPod returns the containers of the pod that have these IDs, and the others that the cache has.
// Once all containers have been listed it requests them by ID, because containerd reads every
// container that it has for a list.
func (l *Lookup) OfPod(ctx context.Context, key pod.Key, ids []string) ([]containers.Container, error) {
	service := l.client.ContainerService()
	others, whole := l.cache.Of(key)
	if !whole {
		found, err := service.List(ctx, KeyFilter(key))
		if err != nil {
			return nil, daemon.Mapped("listing the containers of "+key.String(), err)
		}
		return slices.DeleteFunc(found, func(c containers.Container) bool { return !l.Ours(c) }), nil
	}
	all := append(slices.Clone(ids), others...)
	slices.Sort(all)
	var found []containers.Container
	for _, id := range slices.Compact(all) {
		c, err := service.Get(ctx, id)
		if daemon.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, daemon.Mapped("inspecting container "+id, err)
		}
		if l.Ours(c) && KeyOf(c.Labels) == key {
			found = append(found, c)
		}
	}
	return found, nil
}
