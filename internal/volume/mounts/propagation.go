package mounts

import (
	"fmt"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// CanPropagate returns an error for a mount that would silently not propagate: the mount on the
// machine must be shared or, for HostToContainer, at least be a slave of a shared one.
func CanPropagate(path string, p v1.MountPropagationMode) error {
	if p == "" || p == v1.MountPropagationNone {
		return nil
	}
	real, err := filepath.EvalSymlinks(path) // trusted: its mount is only inspected
	if err != nil {
		return err
	}
	on, err := Of(real)
	switch {
	case err != nil:
		return err
	case on == nil, IsShared(on):
		return nil
	case p == v1.MountPropagationHostToContainer && strings.Contains(on.Optional, "master:"):
		return nil
	}
	return fmt.Errorf("mountPropagation %s: %s is on the mount %s, which is not shared (mount --make-shared %s)",
		p, path, on.Mountpoint, on.Mountpoint)
}
