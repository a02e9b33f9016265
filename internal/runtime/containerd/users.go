package containerd

import (
	"errors"
	"fmt"
	"os"
	"slices"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
)

// allowUsers returns an error for a pod with its own user namespace (hostUsers: false) if its users
// could not own their root filesystem here.
func (r *Runtime) allowUsers(p *v1.Pod) error {
	if p.Spec.HostUsers == nil || *p.Spec.HostUsers {
		return nil
	}
	if share := p.Spec.ShareProcessNamespace; share != nil && *share {
		return &runtime.ReasonError{
			Reason: "FailedCreatePodSandBox",
			Err:    errors.New("hostUsers: false beside shareProcessNamespace: true is not supported"),
		}
	}
	if r.client.Remaps {
		return nil
	}
	return &runtime.ReasonError{
		Reason: "FailedCreatePodSandBox",
		Err: fmt.Errorf("hostUsers: false: containerd's snapshotter %s cannot give the pod's users their root "+
			"filesystem here: that needs overlayfs, containerd 2.0 and Linux 5.19 "+
			"(see ctr plugins list -d, capability %s)", r.client.Snapshotter, daemon.RemapIDs),
	}
}

// setIOUser makes the shim give the container's standard streams to the pod's users, so that a
// process may reopen its own, for example as /dev/stdout. first is the host user ID of the first of
// the pod's users; 0 means that the pod has no users of its own.
func (h *handler) setIOUser(first uint32) error {
	if first == 0 || h.options == nil {
		return nil
	}
	return h.change(func(options *runcoptions.Options) { options.IoUid, options.IoGid = first, first })
}

// setCgroupDriver makes runc create the container's cgroup with the given driver, which also creates the
// pod's.
func (h *handler) setCgroupDriver(driver oci.Driver) error {
	if driver != oci.Systemd {
		return nil
	}
	if h.options == nil {
		return &runtime.ReasonError{
			Reason: "FailedCreatePodSandBox",
			Err:    fmt.Errorf("runtime %s cannot be configured to create its cgroups with systemd", h.name),
		}
	}
	return h.change(func(options *runcoptions.Options) { options.SystemdCgroup = true })
}

// change changes the handler's options, which must be runc's.
func (h *handler) change(change func(*runcoptions.Options)) error {
	options := &runcoptions.Options{}
	if err := typeurl.UnmarshalTo(h.options, options); err != nil {
		return fmt.Errorf("decoding runc's options: %w", err)
	}
	change(options)
	var err error
	if h.options, err = typeurl.MarshalAny(options); err != nil {
		return fmt.Errorf("encoding runc's options: %w", err)
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
