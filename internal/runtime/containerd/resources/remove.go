package resources

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/instance"
)

// Remove removes the cgroups of a pod revision.
func (g *PodCgroups) Remove(ctx context.Context, uid pod.UID) error {
	if err := g.remove(ctx, uid); err != nil {
		return err
	}
	g.sizes.Drop(uid)
	return nil
}

// remove removes the cgroups of a pod revision. They are empty by then, except for processes
// that interrupted starts left in them, which it kills, and for containers of another podrun that has the
// same pod: then they stay.
func (g *PodCgroups) remove(ctx context.Context, uid pod.UID) error {
	mounts, err := instance.Hierarchies()
	if err != nil {
		return fmt.Errorf("listing the cgroup hierarchies: %w", err)
	}
	var all []error
	shared := map[string]bool{} // whether others have containers in a cgroup that was there
	for _, m := range mounts {
		for _, path := range oci.CgroupsOf(string(uid)) {
			dir := filepath.Join(m.Mountpoint, path)
			if _, err := os.Lstat(dir); err != nil {
				continue
			}
			var others bool
			err := removeTree(dir)
			if errors.Is(err, syscall.EBUSY) {
				if others, err = g.orphans.KillUnknown(ctx, m.Mountpoint, path); !others {
					err = errors.Join(err, removeEmptied(ctx, dir))
				}
			}
			shared[path] = shared[path] || others
			if err != nil {
				all = append(all, fmt.Errorf("removing a pod's cgroup: %w", err))
			}
		}
	}
	for path, others := range shared {
		if others {
			g.log.Info("a pod's cgroup stays: another podrun has containers in it", "cgroup", path)
			continue
		}
		if err := cgroup.StopSlice(ctx, path); err != nil {
			all = append(all, err)
		}
		g.weighBurstable(path)
	}
	return errors.Join(all...)
}

// removeEmptied is removeTree for a cgroup whose processes have just been killed: it retries while
// the cgroup is busy.
func removeEmptied(ctx context.Context, dir string) error {
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	var err error
	for range 100 {
		if err = removeTree(dir); !errors.Is(err, syscall.EBUSY) {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return err
		}
	}
	return err
}

// removeTree removes a cgroup and those below it. It removes directories only: a cgroup's files are
// removed with it. It ignores a read-only hierarchy, which has no cgroups of podrun.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	err = syscall.Rmdir(dir)
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EROFS) {
		return nil
	}
	return &os.PathError{Op: "rmdir", Path: dir, Err: err}
}
