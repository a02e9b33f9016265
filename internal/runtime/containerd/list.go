package containerd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/containers"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/sandbox"
)

// List implements runtime.Lister. It costs containerd two calls, however many pods there are.
func (r *Runtime) List(ctx context.Context) ([]pod.Observed, error) {
	ctx = r.client.Context(ctx)
	r.nursery.Reap()
	found, err := r.client.ContainerService().List(ctx)
	if err != nil {
		return nil, daemon.Mapped("listing containers", err)
	}
	answer, err := r.client.TaskService().List(ctx, &tasks.ListTasksRequest{})
	if err != nil {
		return nil, daemon.Mapped("listing tasks", err)
	}
	byID := make(map[string]*task.Process, len(answer.Tasks))
	for _, t := range answer.Tasks {
		byID[t.ID] = t
	}
	sandboxes, err := r.Sandboxes.List()
	if err != nil {
		return nil, err
	}
	seen, unknown, err := r.gather(ctx, found, byID, sandboxes, nil)
	if err != nil {
		return nil, err
	}
	r.known.listed(time.Now())
	return told(seen, unknown)
}

// told parts the pods of which it is known what they are like from those of which it is not.
func told(seen map[pod.Key]*pod.Observed, unknown map[pod.Key]error) ([]pod.Observed, error) {
	out := make([]pod.Observed, 0, len(seen))
	for key, o := range seen {
		if unknown[key] == nil {
			out = append(out, *o)
		}
	}
	if len(unknown) == 0 {
		return out, nil
	}
	e := &runtime.UnknownError{}
	var why []error
	for _, key := range slices.SortedFunc(maps.Keys(unknown), func(a, b pod.Key) int { return strings.Compare(a.String(), b.String()) }) {
		e.Pods = append(e.Pods, *seen[key])
		why = append(why, fmt.Errorf("%s: %w", key, unknown[key]))
	}
	e.Err = errors.Join(why...)
	return out, e
}

// Inspect implements runtime.Lister.
func (r *Runtime) Inspect(ctx context.Context, key pod.Key) (pod.Observed, error) {
	ctx = r.client.Context(ctx)
	found, err := r.containersOf(ctx, key)
	if err != nil {
		return pod.Observed{}, err
	}
	byID := make(map[string]*task.Process, len(found))
	for _, c := range found {
		t, err := r.task(ctx, c.ID)
		if err != nil {
			return pod.Observed{}, err
		}
		if t != nil {
			byID[c.ID] = t
		}
	}
	sandboxes, err := r.Sandboxes.Of(key)
	if err != nil {
		return pod.Observed{}, err
	}
	for _, s := range sandboxes {
		r.sandboxes.Put(s.ID, s) // a start is next, as a rule
	}
	seen, unknown, err := r.gather(ctx, found, byID, sandboxes, &key)
	if err = cmp.Or(err, unknown[key]); err != nil {
		return pod.Observed{}, err
	}
	o, ok := seen[key]
	switch {
	case !ok:
		return pod.Observed{Key: key}, nil
	case r.known.hears(key, o.Remembered):
		return r.Inspect(ctx, key)
	default:
		return *o, nil
	}
}

// containersOf returns the pod's containers. Once everything has been listed it asks for the known ones by ID:
// for a list, containerd reads every container that it has.
func (r *Runtime) containersOf(ctx context.Context, key pod.Key) ([]containers.Container, error) {
	service := r.client.ContainerService()
	ids, whole := r.known.of(key)
	if !whole {
		found, err := service.List(ctx, keyFilter(key))
		if err != nil {
			return nil, daemon.Mapped("listing the containers of "+key.String(), err)
		}
		return found, nil
	}
	var found []containers.Container
	for _, id := range ids {
		c, err := service.Get(ctx, id)
		if daemon.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, daemon.Mapped("looking at container "+id, err)
		}
		found = append(found, c)
	}
	return found, nil
}

// task returns the instance's task, nil when it has none.
func (r *Runtime) task(ctx context.Context, id string) (*task.Process, error) {
	answer, err := r.client.TaskService().Get(ctx, &tasks.GetRequest{ContainerID: id})
	if daemon.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, daemon.Mapped("looking for the task of "+id, err)
	}
	return answer.Process, nil
}

// gather puts containers, tasks, sandboxes and directories together by pod; of directories, with only,
// those of one pod at least. unknown says why it could not be told of a pod what its instances are like.
func (r *Runtime) gather(ctx context.Context, found []containers.Container, byID map[string]*task.Process, sandboxes []sandbox.Record, only *pod.Key) (pods map[pod.Key]*pod.Observed, unknown map[pod.Key]error, err error) {
	pods, unknown = map[pod.Key]*pod.Observed{}, map[pod.Key]error{}
	of := func(key pod.Key) *pod.Observed {
		if pods[key] == nil {
			pods[key] = &pod.Observed{Key: key}
		}
		return pods[key]
	}
	owners := owners{}
	superseded := superseded(found)
	for _, c := range found {
		if !ours(c.Labels) || superseded[c.ID] {
			continue
		}
		key := keyOf(c.Labels)
		r.known.saw(c.ID, key)
		if unknown[key] != nil {
			continue // whoever does not answer would be waited for again
		}
		instance, there, err := r.observe(ctx, c, byID[c.ID])
		switch {
		case errors.Is(err, runtime.ErrUnavailable) || ctx.Err() != nil:
			return nil, nil, cmp.Or(err, ctx.Err())
		case err != nil:
			of(key)
			unknown[key] = err
		case there:
			o := of(key)
			o.Containers = append(o.Containers, instance)
			owners.add(key, instance.UID, c.Labels[labelOwner], c.CreatedAt)
		}
	}
	for _, s := range sandboxes {
		o := of(s.Key)
		o.Sandboxes = append(o.Sandboxes, s.Sandbox)
		owners.add(s.Key, s.UID, s.Owner, s.CreatedAt)
	}
	saved, err := r.Saved(only)
	if err != nil {
		return nil, nil, err
	}
	for uid, m := range saved {
		o := of(m.Key)
		o.Data = append(o.Data, uid)
		o.Remembered = append(o.Remembered, m.Newest...)
		owners.addData(m.Key, uid, m.Owner, m.SavedAt)
	}
	for key, o := range pods {
		o.Sort()
		o.Owner = owners[key].owner
	}
	return pods, unknown, nil
}

// superseded are the generations of instances that have a later one.
func superseded(found []containers.Container) map[string]bool {
	out := map[string]bool{}
	for _, c := range found {
		if ours(c.Labels) {
			for _, id := range earlier(c.Labels) {
				out[id] = true
			}
		}
	}
	return out
}

// owners finds the newest revision's owner. A revision's manifest says it best: it is written anew when
// another kind of run takes the pod over.
type owners map[pod.Key]ownership

type ownership struct {
	uid      pod.UID
	at       time.Time
	owner    string
	byRecord bool // said by what was started, not by the manifest
}

func (o owners) add(key pod.Key, uid pod.UID, owner string, at time.Time) {
	if was, ok := o[key]; !ok || at.After(was.at) {
		o[key] = ownership{uid: uid, at: at, owner: owner, byRecord: true}
	}
}

func (o owners) addData(key pod.Key, uid pod.UID, owner string, at time.Time) {
	was, ok := o[key]
	switch {
	case ok && was.uid == uid:
		was.owner = owner
		o[key] = was
	case !ok, !was.byRecord && at.After(was.at):
		o[key] = ownership{uid: uid, at: at, owner: owner}
	}
}

// observe tells what the instance is. It is not there when it was removed since it was listed.
func (r *Runtime) observe(ctx context.Context, c containers.Container, t *task.Process) (pod.Container, bool, error) {
	out := record(c)
	ended, recorded := exitOf(c.Labels)
	switch {
	case recorded:
		out = withExit(out, ended)
		out.Reaped = t == nil
	case t == nil:
		return r.observeWithoutTask(ctx, c)
	default:
		switch t.Status {
		case task.Status_RUNNING, task.Status_PAUSED, task.Status_PAUSING:
			out.State, out.PID = pod.Running, int(t.Pid)
		case task.Status_CREATED:
			out.State = pod.Created
		case task.Status_STOPPED:
			if !r.ran(c) {
				// What ended is a process that had only been prepared when its start was cut off.
				out.State = pod.Created
				break
			}
			out = withExit(out, r.taskExit(c, t))
		default:
			out.State = pod.Unknown
		}
	}
	if out.State != pod.Created {
		out.StartedAt = c.CreatedAt
		out.Notes = r.NotesOf(out.UID, c.ID)
	}
	return out, true, nil
}

func withExit(c pod.Container, e exit) pod.Container {
	c.State, c.ExitCode, c.FinishedAt, c.Reason, c.Message = pod.Exited, e.code, e.at, e.reason, e.message
	return c
}

// taskExit is the exit of a stopped task.
func (r *Runtime) taskExit(c containers.Container, t *task.Process) exit {
	code := int(t.ExitStatus)
	oom := code == exitKilled && (r.known.oom(c.ID) || oomKilled(c))
	return exit{code: code, at: t.ExitedAt.AsTime(), reason: reasonFor(code, oom), message: r.lastWords(c)}
}

// observeWithoutTask tells an instance that never ran from one whose task is gone without a record of
// its exit. The listings are not of one moment, so it looks again: a task comes before the mark and the
// record of an exit before the task's end, hence mark, task and record are read in this order.
func (r *Runtime) observeWithoutTask(ctx context.Context, c containers.Container) (pod.Container, bool, error) {
	if !r.ran(c) {
		out := record(c)
		out.State = pod.Created
		return out, true, nil
	}
	t, err := r.task(ctx, c.ID)
	if err != nil {
		return pod.Container{}, false, err
	}
	c, err = r.client.ContainerService().Get(ctx, c.ID)
	if daemon.IsNotFound(err) {
		return pod.Container{}, false, nil
	}
	if err != nil {
		return pod.Container{}, false, daemon.Mapped("looking at a container again", err)
	}
	if _, recorded := exitOf(c.Labels); recorded || t != nil {
		return r.observe(ctx, c, t)
	}
	out := withExit(record(c), r.lostExit(c))
	out.StartedAt, out.Notes = c.CreatedAt, r.NotesOf(out.UID, c.ID)
	return out, true, nil
}

// lostExit stands for an exit that nobody recorded, as when containerd was down or the machine was
// switched off. The time is that of the last sign of life.
func (r *Runtime) lostExit(c containers.Container) exit {
	last := c.CreatedAt
	l := record(c)
	for _, name := range []string{stdoutFile, stderrFile} {
		info, err := os.Stat(filepath.Join(r.Dirs.RawLog(l.UID, l.Name, l.Attempt), name))
		if err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return exit{
		code: exitLost, at: last, reason: reasonLost,
		message: "The container's exit was not seen: its runtime or the machine went down.",
	}
}

// ran reports that the process of an instance without a task may have run: in an earlier boot, or by its
// mark, or, if that was lost, by what was noted down.
func (r *Runtime) ran(c containers.Container) bool {
	own := record(c)
	if r.boot != c.Labels[labelBoot] || r.Marked(own.UID, c.ID) {
		return true
	}
	for _, n := range r.Remembered(own.UID) {
		if n.ID == c.ID && n.State != pod.Created || n.Name == own.Name && n.Attempt > own.Attempt {
			return true
		}
	}
	return false
}

// sandboxRecord returns the record of a sandbox, for what never changes in it.
func (r *Runtime) sandboxRecord(id string) (sandbox.Record, error) {
	if record, ok := r.sandboxes.Get(id); ok {
		return record, nil
	}
	all, err := r.Sandboxes.List()
	if err != nil {
		return sandbox.Record{}, err
	}
	for _, record := range all {
		if record.ID == id {
			r.sandboxes.Put(id, record)
			return record, nil
		}
	}
	return sandbox.Record{}, fmt.Errorf("sandbox %s: %w", id, runtime.ErrNotFound)
}
