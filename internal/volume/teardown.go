package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// Teardown unmounts what was mounted for a revision's volumes, and nothing else: not what somebody put
// into one, nor what is in use. Then it is an error, to be tried again.
func (v *Volumes) Teardown(ctx context.Context, uid pod.UID) error {
	if !isComponent(string(uid)) {
		return fmt.Errorf("the pod's uid %q cannot be a directory's name", uid)
	}
	if err := v.giveUp(ctx, uid); err != nil {
		return fmt.Errorf("waiting for the end of a mount command: %w", err)
	}
	v.mu.Lock()
	maps.DeleteFunc(v.owned, func(key ownKey, _ bool) bool { return key.uid == uid })
	v.mu.Unlock()
	parent, err := filepath.EvalSymlinks(v.dirs.Pods())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	dir := filepath.Join(parent, string(uid))
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return fmt.Errorf("looking for a pod's mounts: %w", err)
	}
	var errs []error
	for _, m := range slices.Backward(mounts) { // the latest first: several may be on one place
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		switch {
		case isPin(dir, m.Mountpoint):
			err = unmountTree(m.Mountpoint)
		case isOwnMount(dir, m) && slices.Contains(kindsOfNFS(), m.FSType):
			err = v.unmountRemote(ctx, uid, m.Mountpoint)
		case isOwnMount(dir, m):
			err = unmount(m.Mountpoint)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// unmount unmounts what is on a path now, if anything is; never by force.
func unmount(path string) error {
	if err := sys.Unmount(path); !errors.Is(err, sys.ErrNotMounted) {
		return err
	}
	return nil
}

// unmountTree unmounts a bind of podrun's with what came into it with its source; the source keeps it.
func unmountTree(path string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(path))
	if err != nil {
		return fmt.Errorf("looking for mounts on %s: %w", path, err)
	}
	if len(mounts) == 0 {
		return nil
	}
	if err := sys.SetPropagation(path, sys.SlaveTree); err != nil && !errors.Is(err, sys.ErrNotMounted) {
		return fmt.Errorf("parting %s from its source: %w", path, err)
	}
	for _, m := range slices.Backward(mounts) {
		if err := unmount(m.Mountpoint); err != nil {
			return err
		}
	}
	return nil
}

// isPin reports the place of a part of a volume.
func isPin(podDir, path string) bool {
	within, err := filepath.Rel(podDir, path)
	parts := strings.Split(within, "/")
	return err == nil && len(parts) == 4 && parts[0] == filepath.Base(layout.Dirs{}.SubPaths(""))
}

// isOwnMount reports a mount of podrun's: on the very place of a volume, and of a kind that is mounted
// there.
func isOwnMount(podDir string, m *mountinfo.Info) bool {
	within, err := filepath.Rel(podDir, m.Mountpoint)
	if err != nil {
		return false
	}
	parts := strings.Split(within, "/")
	memory := m.Source == mountSource && (m.FSType == "tmpfs" || m.FSType == "hugetlbfs")
	if within == filepath.Base(layout.Dirs{}.Withheld("")) {
		return memory
	}
	if len(parts) != 3 || parts[0] != "volumes" {
		return false
	}
	switch parts[1] {
	case layout.KindNFS:
		return slices.Contains(kindsOfNFS(), m.FSType)
	case layout.KindImage:
		return false // the runtime's
	}
	return memory
}
