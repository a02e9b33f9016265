package unpacked

import (
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"

	"podrun.io/podrun/internal/sys"
)

// mountFiles mounts the files of a snapshot at a path, read-only. Devices do not work there,
// set-user-ID bits have no effect, and programs can be executed only if allow is sys.AllowExec. It
// uses containerd's library, because only that library knows the mounts of containerd's
// snapshotters.
func mountFiles(mounts []mount.Mount, at string, allow sys.Allow) error {
	return mount.All(readOnly(mounts, allow), at)
}

// readOnly returns the mounts with options that prevent any effect on the machine.
func readOnly(mounts []mount.Mount, allow sys.Allow) []mount.Mount {
	out := slices.Clone(mount.RemoveIDMapOption(mount.RemoveVolatileOption(mounts)))
	for i := range out {
		options := slices.DeleteFunc(slices.Clone(out[i].Options), func(o string) bool {
			return slices.Contains([]string{"rw", "ro", "suid", "dev", "exec"}, o) || strings.HasPrefix(o, "workdir=")
		})
		out[i].Options = append(options, "ro", "nosuid", "nodev")
		if allow != sys.AllowExec {
			out[i].Options = append(out[i].Options, "noexec")
		}
	}
	return out
}
