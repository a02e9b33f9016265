package start

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// relabel sets the label of the container's files on those mounts that are podrun's own. It leaves the host's files
// alone, as the kubelet does, also where a subPath or a user namespace has them below podrun's directory.
func (st *ContainerStarter) relabel(ctx context.Context, mounts []pod.Mount, files string) error {
	if files == "" {
		return nil
	}
	for _, m := range mounts {
		own := strings.HasPrefix(m.HostPath, st.o.Dirs.Root+"/") || strings.HasPrefix(m.HostPath, st.o.Dirs.Run+"/")
		if m.Block || m.OfHost || !own {
			continue
		}
		if err := sys.LabelTree(ctx, m.HostPath, files); err != nil {
			return fmt.Errorf("labelling %s: %w", m.HostPath, err)
		}
	}
	return nil
}

// chownManaged gives the files that podrun provides for the container, such as /etc/hosts, to the
// pod's root user.
func chownManaged(mounts []pod.Mount, first uint32) error {
	for _, m := range mounts {
		if !m.Managed || first == 0 {
			continue
		}
		if err := os.Lchown(m.HostPath, int(first), int(first)); err != nil {
			return fmt.Errorf("giving %s to the pod's users: %w", m.ContainerPath, err)
		}
	}
	return nil
}

// keepFlags adds to each bind mount the restricting flags of the mount on the host, such as nodev:
// the pod's users cannot remove them, and the kernel refuses a mount in their user namespace that
// does not repeat them.
func keepFlags(mounts []specs.Mount) error {
	for i, m := range mounts {
		if m.Type != "bind" {
			continue
		}
		var st unix.Statfs_t
		if err := unix.Statfs(m.Source, &st); err != nil {
			return fmt.Errorf("reading the flags of the mount %s: %w", m.Source, err)
		}
		for _, flag := range []struct {
			is   int64
			name string
		}{
			{unix.ST_NOSUID, "nosuid"},
			{unix.ST_NODEV, "nodev"},
			{unix.ST_NOEXEC, "noexec"},
			{unix.ST_RDONLY, "ro"},
			{unix.ST_NOATIME, "noatime"},
			{unix.ST_RELATIME, "relatime"},
			{unix.ST_NODIRATIME, "nodiratime"},
		} {
			if st.Flags&flag.is != 0 && !slices.Contains(mounts[i].Options, flag.name) {
				mounts[i].Options = append(mounts[i].Options, flag.name)
			}
		}
	}
	return nil
}

// idMapping returns the options of a root filesystem whose files belong to the pod's users; none if
// first is 0.
func idMapping(first uint32) []snapshots.Opt {
	if first == 0 {
		return nil
	}
	mapping := fmt.Sprintf("0:%d:%d", first, oci.Users)
	return []snapshots.Opt{snapshots.WithLabels(map[string]string{
		snapshots.LabelSnapshotUIDMapping: mapping, snapshots.LabelSnapshotGIDMapping: mapping,
	})}
}
