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

	"github.com/moby/sys/mountinfo"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/instance"
)

// Release removes the cgroups of a pod that has completed, whose last sandbox is gone: it must not have a CPU weight as
// if it ran. If processes are in them, also of a container that this podrun does not see, or something fails, they stay
// until Remove.
func (g *PodCgroups) Release(ctx context.Context, uid pod.UID) {
	mounts, err := instance.Hierarchies()
	for _, m := range mounts {
		for _, path := range oci.CgroupsOf(string(uid)) {
			left, err := cgroup.ProcessesBelow(filepath.Join(m.Mountpoint, path))
			if len(left) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
				g.log.Info("the cgroup of a pod without a sandbox stays: processes are in it", "cgroup", path, "err", err)
				return
			}
		}
	}
	if err == nil {
		err = g.remove(ctx, uid, false)
	}
	if err != nil {
		g.log.Debug("the cgroup of a pod without a sandbox cannot be removed yet", "uid", uid, "err", err)
	}
}

// Remove removes the cgroups of a pod revision. They are empty by then, except for processes
// that interrupted starts left in them, which it kills, and for containers of another podrun that has the
// same pod: then they stay. A slice may be there without its cgroup: systemd did not answer when the cgroup had just
// been removed, or podrun was killed then.
func (g *PodCgroups) Remove(ctx context.Context, uid pod.UID) error {
	return g.remove(ctx, uid, g.driver == oci.Systemd)
}

// remove is Remove; slices are stopped where there is no cgroup only if asked.
func (g *PodCgroups) remove(ctx context.Context, uid pod.UID, slices bool) error {
	mounts, err := instance.Hierarchies()
	if err != nil {
		return fmt.Errorf("listing the cgroup hierarchies: %w", err)
	}
	var all []error
	for _, path := range oci.CgroupsOf(string(uid)) {
		there, others, err := g.removeAt(ctx, mounts, path)
		all = append(all, err)
		if others {
			g.log.Info("a pod's cgroup stays: another podrun has containers in it", "cgroup", path)
			continue
		}
		if there || slices {
			all = append(all, g.stopSlice(ctx, path))
		}
		if there {
			g.weighBurstable(path)
		}
	}
	if err := errors.Join(all...); err != nil {
		return err
	}
	g.sizes.Drop(uid)
	return nil
}

// removeAt removes the cgroup at path from the hierarchies. It returns whether it was there, and whether others have
// containers in it.
func (g *PodCgroups) removeAt(
	ctx context.Context, mounts []*mountinfo.Info, path string,
) (there, others bool, err error) {
	var all []error
	for _, m := range mounts {
		dir := filepath.Join(m.Mountpoint, path)
		if _, err := os.Lstat(dir); err != nil {
			continue
		}
		there = true
		err := removeTree(dir)
		if errors.Is(err, syscall.EBUSY) {
			var here bool
			if here, err = g.orphans.KillUnknown(ctx, m.Mountpoint, path); !here {
				err = errors.Join(err, removeEmptied(ctx, dir))
			}
			others = others || here
		}
		if err != nil {
			all = append(all, fmt.Errorf("removing a pod's cgroup: %w", err))
		}
	}
	return there, others, errors.Join(all...)
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
