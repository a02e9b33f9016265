package volume

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"
)

// canPropagate returns an error for a mount that would silently not propagate: the mount on the
// machine must be shared or, for HostToContainer, at least be a slave of a shared one.
func canPropagate(path string, p v1.MountPropagationMode) error {
	if p == "" || p == v1.MountPropagationNone {
		return nil
	}
	real, err := filepath.EvalSymlinks(path) // trusted: its mount is only inspected
	if err != nil {
		return err
	}
	mounts, err := mountinfo.GetMounts(mountinfo.ParentsFilter(real))
	if err != nil {
		return fmt.Errorf("looking for the mount of %s: %w", path, err)
	}
	var on *mountinfo.Info
	for _, m := range mounts {
		if on == nil || len(m.Mountpoint) >= len(on.Mountpoint) { // of several on one path the last is visible
			on = m
		}
	}
	switch {
	case on == nil, strings.Contains(on.Optional, "shared:"):
		return nil
	case p == v1.MountPropagationHostToContainer && strings.Contains(on.Optional, "master:"):
		return nil
	}
	return fmt.Errorf("mountPropagation %s: %s is on the mount %s, which is not shared (mount --make-shared %s)",
		p, path, on.Mountpoint, on.Mountpoint)
}
