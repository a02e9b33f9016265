package checkpointed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// lister implements runtime.Lister: it merges the checkpoints with what the engine has.
type lister struct {
	o *Options
	// lostSince maps the ID of an instance to the time at which its exit was first found to be lost,
	// until that exit is recorded.
	lostSince sync.Map
}

// List implements runtime.Lister.
func (r *lister) List(ctx context.Context) ([]pod.Observed, error) {
	before, err := r.o.Store.List()
	if err != nil {
		return nil, err
	}
	found, err := r.o.Driver.ListContainers(ctx)
	unknown := (*runtime.UnknownError)(nil)
	if err != nil && !errors.As(err, &unknown) {
		return nil, err
	}
	hidden := map[pod.Key]bool{}
	if unknown != nil {
		for _, o := range unknown.Pods {
			hidden[o.Key] = true
		}
	}
	keys := map[pod.Key]bool{}
	for key := range before {
		keys[key] = true
	}
	for key := range found {
		keys[key] = true
	}
	var all, left []pod.Observed
	var why []error
	for _, key := range slices.SortedFunc(maps.Keys(keys), pod.Key.Compare) {
		o, sure := r.merge(key, before[key], found[key])
		switch {
		case hidden[key]:
			left = append(left, o)
			continue
		case !sure || r.withheld(before[key], found[key]) != nil:
			inspected, err := r.Inspect(ctx, key)
			if err != nil {
				if errors.Is(err, runtime.ErrUnavailable) || ctx.Err() != nil {
					return nil, err
				}
				o.Data = append(o.Data, r.unnamed(o)...)
				o.Containers = nil
				left, why = append(left, o), append(why, fmt.Errorf("%s: %w", key, err))
				continue
			}
			o = inspected
		}
		if !o.Empty() {
			all = append(all, o)
		}
	}
	if len(left) == 0 {
		return all, nil
	}
	if unknown != nil {
		why = append([]error{unknown.Err}, why...)
	}
	return all, &runtime.UnknownError{Pods: left, Err: errors.Join(why...)}
}

// tries is how often Inspect inspects a pod again because its checkpoint changed meanwhile.
const tries = 5

// errChanging reports that a pod's checkpoint changed during each attempt to inspect the pod.
var errChanging = errors.New("the checkpoint keeps changing")

// Inspect implements runtime.Lister.
func (r *lister) Inspect(ctx context.Context, key pod.Key) (pod.Observed, error) {
	before, err := r.o.Store.Of(key)
	if err != nil {
		return pod.Observed{}, withOwner(err)
	}
	for range tries {
		found, err := r.o.Driver.InspectContainers(ctx, key, idsOf(before))
		if err != nil {
			return pod.Observed{}, err
		}
		if err := r.withheld(before, found); err != nil {
			return pod.Observed{}, err
		}
		o, sure := r.merge(key, before, found)
		if sure {
			return o, nil
		}
		// What the engine has does not match the checkpoints. If they have changed meanwhile,
		// compare again with the new ones; if they have not, the mismatch is real.
		after, err := r.o.Store.Of(key)
		if err != nil {
			return pod.Observed{}, withOwner(err)
		}
		if slices.Equal(before, after) {
			return o, nil
		}
		before = after
	}
	return pod.Observed{}, fmt.Errorf("inspecting %s: %w", key, errChanging)
}

// withheld returns the error for which the state of one of the pod's revisions is not known, or
// nil. A pod with such a revision is left as it is.
func (r *lister) withheld(all []*checkpoint.Checkpoint, found []pod.Container) error {
	var uids []pod.UID
	for _, c := range all {
		uids = append(uids, c.UID())
	}
	for _, c := range found {
		uids = append(uids, c.UID)
	}
	for _, uid := range uids {
		if err := r.o.Store.Withheld(uid); err != nil {
			return withOwner(err)
		}
	}
	return nil
}

// withOwner converts the error of a checkpoint that a later version of podrun wrote to a
// *runtime.WithheldError.
func withOwner(err error) error {
	if errors.Is(err, checkpoint.ErrLater) {
		return &runtime.WithheldError{Owner: "a later version of podrun", Err: err}
	}
	return err
}

// unnamed returns the revisions of which the engine has an instance but whose checkpoint cannot be
// read.
func (r *lister) unnamed(o pod.Observed) []pod.UID {
	var uids []pod.UID
	for _, c := range o.Containers {
		if r.o.Store.Withheld(c.UID) != nil && !slices.Contains(slices.Concat(o.Data, uids), c.UID) {
			uids = append(uids, c.UID)
		}
	}
	return uids
}

func idsOf(all []*checkpoint.Checkpoint) []string {
	var ids []string
	for _, c := range all {
		for _, i := range c.Instances {
			ids = append(ids, i.ID)
		}
	}
	return ids
}

// merge returns what exists of a pod, from its checkpoints, which were read before the engine was
// inspected, and from what the engine has. sure is false if the engine has something that the
// checkpoints do not name, or lacks a process that they record as started: then the checkpoints may
// be out of date.
func (r *lister) merge(key pod.Key, all []*checkpoint.Checkpoint, found []pod.Container) (o pod.Observed, sure bool) {
	o, sure = pod.Observed{Key: key}, true
	boot := r.o.Boot()
	byID := make(map[string]pod.Container, len(found))
	for _, c := range found {
		byID[c.ID] = c
	}
	for i, c := range all {
		if i == 0 {
			o.Owner = c.Owner
		}
		o.Data = append(o.Data, c.UID())
		for _, s := range c.Sandboxes {
			s.Ready = s.Details.Complete && s.Boot == boot && r.o.Driver.SandboxReady(s)
			o.Sandboxes = append(o.Sandboxes, s)
		}
		if len(c.Sandboxes) == 0 && c.LastSandbox != nil {
			o.Gone = append(o.Gone, *c.LastSandbox)
		}
		ran := c.Clone()
		for _, kept := range c.Instances {
			seen, there := byID[kept.ID]
			delete(byID, kept.ID)
			instance, shown, certain := r.instance(kept, seen, there)
			sure = sure && certain
			if shown {
				o.Containers = append(o.Containers, instance)
			}
			if shown && instance.State == pod.Created { // recorded as Running, but its process never ran
				ran.Instance(kept.ID).State = pod.Created
			}
		}
		o.Remembered = append(o.Remembered, ran.Newest()...)
	}
	for _, c := range byID {
		c.Stray, c.Grace, sure = true, strayGrace, false
		o.Containers = append(o.Containers, c)
	}
	o.Sort()
	return o, sure
}

// strayGrace is the grace period of an instance whose own grace period is not known, because no
// checkpoint names the instance. It is Kubernetes' default,
// v1.DefaultTerminationGracePeriodSeconds.
const strayGrace = 30 * time.Second

// instance merges what the checkpoint records of an instance (kept) with what the engine reports of
// it (seen; there is false if it reports nothing). shown is false if nothing but the record in the
// checkpoint is left.
func (r *lister) instance(kept, seen pod.Container, there bool) (c pod.Container, shown, sure bool) {
	c = kept
	c.PID, c.Reaped = 0, there && seen.Reaped
	switch {
	case !there && kept.State == pod.Created:
		return intent(c), true, true // the engine may still be creating it, or never began
	case !there:
		return c, false, kept.State == pod.Exited
	case seen.State == pod.Running || seen.State == pod.Unknown:
		r.lostSince.Delete(c.ID) // the engine did not list it before, for example while it started
		c.State, c.PID, c.Reaped = seen.State, seen.PID, false
		c.Exit = pod.Exit{}
		return c, true, true
	case kept.State == pod.Exited:
		return c, true, true
	case kept.State == pod.Created:
		return intent(c), true, true
	case seen.State == pod.Exited:
		c.State, c.Exit = seen.State, seen.Exit
		return c, true, true
	case !seen.Reaped:
		return intent(c), true, true // its process is prepared: the start was interrupted just before it ran
	}
	return r.lost(c), true, false
}

// intent returns the instance as one whose process never ran.
func intent(c pod.Container) pod.Container {
	c.State, c.StartedAt, c.Reaped, c.Notes = pod.Created, time.Time{}, false, pod.Notes{}
	return c
}

// Exit code and message of an exit that nobody recorded, for example because the engine was down or
// the machine was switched off.
const (
	exitLost    = 255
	messageLost = "The container's exit was not seen: its runtime or the machine went down."
)

// lost returns the instance as one whose exit is lost.
func (r *lister) lost(c pod.Container) pod.Container {
	c.State, c.Reaped = pod.Exited, false
	c.Exit = pod.Exit{FinishedAt: r.lostAt(c), ExitCode: exitLost, Reason: pod.ReasonLost, Message: messageLost}
	return c
}

// lostAt returns the time at which the instance's exit was found to be lost, which is its finish
// time as in the CRI. It is never before the start of the instance, even if the clock was set back.
func (r *lister) lostAt(c pod.Container) time.Time {
	at, _ := r.lostSince.LoadOrStore(c.ID, r.o.now())
	if at := at.(time.Time); at.After(c.StartedAt) {
		return at
	}
	return c.StartedAt
}
