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

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/volume/csi"
	"podrun.io/podrun/internal/volume/mounts"
)

// Teardown unmounts what podrun mounted for the volumes of a pod revision, and nothing else: not
// what others mounted into a volume. It fails if a mount is in use; the caller must call it again. CSI
// drivers unmount what they mounted, or do so later if they cannot be called.
func (v *Volumes) Teardown(ctx context.Context, uid pod.UID) error {
	if !isComponent(string(uid)) {
		return fmt.Errorf("the pod's uid %q cannot be a directory's name", uid)
	}
	if err := v.mounts.Cancel(ctx, uid); err != nil {
		return fmt.Errorf("waiting for a mount command to end: %w", err)
	}
	v.mu.Lock()
	maps.DeleteFunc(v.owned, func(key ownKey, _ bool) bool { return key.uid == uid })
	v.mu.Unlock()
	dir, table, err := podMounts(v.dirs, uid)
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range slices.Backward(table) { // the latest first: a mount point may have several mounts
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		switch {
		case isPin(dir, m.Mountpoint):
			err = mounts.UnmountTree(m.Mountpoint)
		case isOwnMount(dir, m) && slices.Contains(kindsOfNFS(), m.FSType):
			err = v.mounts.UnmountRemote(ctx, uid, m.Mountpoint)
		case isOwnMount(dir, m):
			err = mounts.Unmount(m.Mountpoint)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return v.csi.Release(ctx, uid)
}

// Published reports whether CSI drivers have mounted volumes of the pod, and are not to unmount them.
func (v *Volumes) Published(uid pod.UID) bool {
	all, _ := csi.Records(v.dirs)
	return slices.ContainsFunc(all, func(r csi.Record) bool { return r.UID == uid && !r.Released })
}

// Ended makes CSI drivers unmount what a pod has that has ended. It stays until then, also without a sandbox.
func (v *Volumes) Ended(ctx context.Context, uid pod.UID) error {
	dir, table, err := podMounts(v.dirs, uid)
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(table) { // parts of their volumes that are mounted elsewhere keep these in use
		if isPin(dir, m.Mountpoint) {
			err = errors.Join(err, mounts.UnmountTree(m.Mountpoint))
		}
	}
	if err != nil {
		return err
	}
	return v.csi.Release(ctx, uid)
}

// podMounts returns the path of a pod's directory as it is in the mount table, and the mounts below it; none if there
// is no such directory.
func podMounts(dirs layout.Dirs, uid pod.UID) (dir string, table []*mountinfo.Info, err error) {
	parent, err := filepath.EvalSymlinks(dirs.Pods()) // trusted: a directory of podrun's own
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	dir = filepath.Join(parent, string(uid))
	if table, err = mountinfo.GetMounts(mountinfo.PrefixFilter(dir)); err != nil {
		return "", nil, fmt.Errorf("listing a pod's mounts: %w", err)
	}
	return dir, table, nil
}

// isPin reports whether path is the mount point of a pinned part of a volume.
func isPin(podDir, path string) bool {
	within, err := filepath.Rel(podDir, path)
	parts := strings.Split(within, "/")
	return err == nil && len(parts) == 4 && parts[0] == filepath.Base(layout.Dirs{}.Revision("").SubPaths())
}

// isOwnMount reports whether a mount is podrun's: it is exactly on a volume's directory, and of a
// type that podrun mounts there.
func isOwnMount(podDir string, m *mountinfo.Info) bool {
	within, err := filepath.Rel(podDir, m.Mountpoint)
	if err != nil {
		return false
	}
	parts := strings.Split(within, "/")
	memory := m.Source == mountSource && (m.FSType == "tmpfs" || m.FSType == "hugetlbfs")
	if within == filepath.Base(layout.Dirs{}.Revision("").Withheld()) {
		return memory
	}
	if len(parts) != 3 || parts[0] != "volumes" {
		return false
	}
	switch parts[1] {
	case layout.KindNFS:
		return slices.Contains(kindsOfNFS(), m.FSType)
	case layout.KindImage:
		return false // belongs to the runtime
	}
	return memory
}
