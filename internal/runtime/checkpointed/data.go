package checkpointed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/mounted"
)

// RetainedAttr is the extended attribute of a log directory that stays on purpose after its pod.
const RetainedAttr = "trusted.podrun.retained"

// data implements runtime.Data with the checkpoints and the directories of revisions.
type data struct {
	o *Options
	// retained are the revisions whose logs are not removed with them.
	retained *sync.Map
}

// SavePod implements runtime.Data. Logs that were retained of an earlier life of the revision are
// removed: the new ones have their names.
func (r data) SavePod(p *v1.Pod, owner string) error {
	if _, err := r.o.Store.Get(p.UID); errors.Is(err, checkpoint.ErrNotFound) && !r.o.KeepLogs {
		dir := r.o.Dirs.PodLogs(pod.KeyOf(p), p.UID)
		if err := mounted.Nothing(dir); err != nil {
			return err
		}
		if err := sys.RemoveTree(context.Background(), dir); err != nil {
			return fmt.Errorf("removing the logs of a pod's former run: %w", err)
		}
	}
	return r.o.Store.Create(p, owner)
}

// RetainLogs makes the logs of a revision stay when it is removed by this process, until it runs again.
func (r data) RetainLogs(uid pod.UID) { r.retained.Store(uid, true) }

// LoadPod implements runtime.Data.
func (r data) LoadPod(uid pod.UID) (*v1.Pod, error) {
	c, err := r.o.Store.Get(uid)
	if errors.Is(err, checkpoint.ErrNotFound) {
		return nil, fmt.Errorf("manifest of revision %s: %w", uid, runtime.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	return c.Pod.DeepCopy(), nil
}

// Note implements runtime.Data.
func (r data) Note(uid pod.UID, id string, n pod.Notes) error {
	n.Hooking = false
	return ignoreMissing(r.o.Store.Update(uid, func(c *checkpoint.Checkpoint) {
		if i := c.Instance(id); i != nil {
			i.Notes = n
		}
	}))
}

func ignoreMissing(err error) error {
	if errors.Is(err, checkpoint.ErrNotFound) {
		return nil
	}
	return err
}

// Evict implements runtime.Data.
func (r data) Evict(uid pod.UID, why string) error {
	return r.o.Store.Update(uid, func(c *checkpoint.Checkpoint) { c.Evicted = why })
}

// Evicted implements runtime.Data.
func (r data) Evicted(uid pod.UID) (string, error) {
	c, err := r.o.Store.Get(uid)
	if err != nil {
		return "", ignoreMissing(err)
	}
	return c.Evicted, nil
}

// Interrupt implements runtime.Data.
func (r data) Interrupt(uid pod.UID) error {
	return r.o.Store.Update(uid, func(c *checkpoint.Checkpoint) { c.Interrupted = true })
}

// Interrupted implements runtime.Data.
func (r data) Interrupted(uid pod.UID) (bool, error) {
	c, err := r.o.Store.Get(uid)
	if err != nil {
		return false, r.o.Store.Withheld(uid) // a checkpoint that is damaged says nothing, and is replaced
	}
	return c.Interrupted, nil
}

// SaveResult implements runtime.Data.
func (r data) SaveResult(uid pod.UID) error { return checkpoint.SaveResult(r.o.Store, uid) }

// RemoveEmptyDirs implements runtime.Data.
func (r data) RemoveEmptyDirs(ctx context.Context, uid pod.UID) error {
	if err := layout.CheckUID(uid); err != nil {
		return err
	}
	dir := r.o.Dirs.Revision(uid).EmptyDir("")
	if err := mounted.Nothing(dir); err != nil {
		return err
	}
	if err := sys.RemoveTree(ctx, dir); err != nil {
		return fmt.Errorf("removing a pod's emptyDir volumes: %w", err)
	}
	return nil
}

// SaveConditions implements runtime.Data.
func (r data) SaveConditions(uid pod.UID, conditions []v1.PodCondition) error {
	return ignoreMissing(r.o.Store.Update(uid, func(c *checkpoint.Checkpoint) {
		c.Conditions = slices.Clone(conditions)
	}))
}

// LoadConditions implements runtime.Data.
func (r data) LoadConditions(uid pod.UID) ([]v1.PodCondition, error) {
	c, err := r.o.Store.Get(uid)
	if err != nil {
		return nil, ignoreMissing(err)
	}
	return slices.Clone(c.Conditions), nil
}

// RemoveData implements runtime.Data. If something is still mounted below one of the directories,
// it removes none of their contents, because the mounted data may belong to a user.
func (r data) RemoveData(ctx context.Context, key pod.Key, uid pod.UID) error {
	if err := layout.CheckUID(uid); err != nil {
		return err
	}
	if err := r.o.Driver.RemovePod(ctx, key, uid); err != nil {
		return err
	}
	for _, dir := range []string{r.o.Dirs.PodLogs(key, uid), r.o.Dirs.Legacy().Etc(uid), r.o.Dirs.Pod(uid)} {
		if err := mounted.Nothing(dir); err != nil {
			return err
		}
	}
	_, retain := r.retained.Load(uid)
	if err := r.retireLogs(ctx, r.o.Dirs.PodLogs(key, uid), retain || r.o.KeepLogs); err != nil {
		return err
	}
	if err := sys.RemoveTree(ctx, r.o.Dirs.Legacy().Etc(uid)); err != nil {
		return fmt.Errorf("removing a pod's files in the run directory: %w", err)
	}
	return r.o.Store.Remove(ctx, uid)
}

// retireLogs removes a revision's logs or, to retain them, sets their modification time to now, from
// which the time that they are retained is counted.
func (r data) retireLogs(ctx context.Context, dir string, retain bool) error {
	if !retain {
		if err := sys.RemoveTree(ctx, dir); err != nil {
			return fmt.Errorf("removing a pod's logs: %w", err)
		}
		return nil
	}
	_ = unix.Lsetxattr(dir, RetainedAttr, []byte("1"), 0) // for people: without it, the logs stay too
	now := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
	err := unix.UtimesNanoAt(unix.AT_FDCWD, dir, now, unix.AT_SYMLINK_NOFOLLOW) // others may have put a link there
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a pod's logs: %w", err)
	}
	return nil
}

// Sweep removes what interrupted creations and removals left and what no list shows. Call it at the
// start of a run, when hardly any other process uses the directories: what another run is just
// creating for a pod may be removed, and that run then creates it again.
func (r *Runtime) Sweep(ctx context.Context) error {
	known, err := r.Retained(ctx)
	if err != nil {
		return errors.Join(r.o.Store.Sweep(ctx), err)
	}
	return errors.Join(r.o.Store.Sweep(ctx), r.o.Driver.Sweep(ctx, known))
}

// Retained returns a function that reports whether a sandbox must be left alone: because a
// checkpoint names it, or may name it, or because the engine has an instance in it. A sandbox that
// no checkpoint names is removed after its containers.
func (r *Runtime) Retained(ctx context.Context) (known func(sandboxID string) bool, err error) {
	if err := r.o.Store.Scan(); err != nil {
		return nil, err
	}
	all, err := r.o.Driver.ListContainers(ctx)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, found := range all {
		for _, c := range found {
			used[c.SandboxID] = true
		}
	}
	// A sandbox that another process has just created is in a checkpoint before it exists on the
	// machine, so scanning the checkpoints again finds it.
	return func(id string) bool {
		return used[id] || r.o.Store.MayName(id) || r.o.Store.Scan() != nil || r.o.Store.MayName(id)
	}, nil
}
