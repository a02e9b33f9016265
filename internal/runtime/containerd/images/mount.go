package images

import (
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"

	"podrun.io/podrun/internal/sys"
)

// mountFiles mounts the files of a snapshot at a path, read-only. No device works there, no program changes its user,
// and none runs unless that is allowed. It is containerd's library that mounts: only it knows its snapshotters' mounts.
func mountFiles(mounts []mount.Mount, at string, allow sys.Allow) error {
	return mount.All(readOnly(mounts, allow), at)
}

// readOnly are the mounts without anything that could have an effect on the machine.
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
