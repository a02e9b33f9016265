package mounts

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"

	"podrun.io/podrun/internal/sys"
)

// Of returns the mount that a path without symbolic links is on; nil if that is not in the mount table.
func Of(path string) (*mountinfo.Info, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.ParentsFilter(path))
	if err != nil {
		return nil, fmt.Errorf("looking for the mount of %s: %w", path, err)
	}
	var on *mountinfo.Info
	for _, m := range mounts {
		if on == nil || len(m.Mountpoint) >= len(on.Mountpoint) { // of several on one path the last is visible
			on = m
		}
	}
	return on, nil
}

// Forbids reports whether set-user-ID bits and devices have no effect in a volume, for the mount that it is on.
func Forbids(dir string) (suid, devices bool, err error) {
	at, err := inTable(dir)
	if err != nil {
		return false, false, err
	}
	on, err := Of(at)
	if err != nil || on == nil {
		return false, false, err
	}
	options := strings.Split(on.Options, ",")
	return slices.Contains(options, "nosuid"), slices.Contains(options, "nodev"), nil
}

// IsShared reports whether what is mounted below a mount appears in its peers, such as containers'.
func IsShared(m *mountinfo.Info) bool { return strings.Contains(m.Optional, "shared:") }

// Share makes mounts below dir appear in containers that have it, and theirs on the machine, as the kubelet does with
// its directory: it mounts dir on itself unless it is on a shared mount. The mount stays when podrun ends, because
// containers go on using it.
func Share(dir string) error {
	real, err := filepath.EvalSymlinks(dir) // trusted: the directory of plugins, which is root's
	if err != nil {
		return err
	}
	on, err := Of(real)
	if err != nil || on != nil && IsShared(on) {
		return err
	}
	if on == nil || on.Mountpoint != real {
		if err := sys.Bind(real, real); err != nil {
			return err
		}
	}
	return sys.SetPropagation(real, sys.SharedTree)
}
