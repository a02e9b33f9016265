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

// allowUsers refuses a pod with users of its own where they would not own their root filesystem.
func (r *Runtime) allowUsers(p *v1.Pod) error {
	if p.Spec.HostUsers == nil || *p.Spec.HostUsers {
		return nil
	}
	if share := p.Spec.ShareProcessNamespace; share != nil && *share {
		return &runtime.ReasonError{Reason: "FailedCreatePodSandBox", Err: errors.New("hostUsers: false beside shareProcessNamespace: true is not supported")}
	}
	if r.client.Remaps {
		return nil
	}
	return &runtime.ReasonError{Reason: "FailedCreatePodSandBox", Err: fmt.Errorf("hostUsers: false: containerd's snapshotter %s cannot give "+
		"the pod's users their root filesystem here: that needs overlayfs, containerd 2.0 and Linux 5.19 (see ctr plugins list -d, capability %s)", r.client.Snapshotter, daemon.RemapIDs)}
}

// giveUsers has the shim give the container's standard streams to the pod's users, the first of which is the
// machine's user of that number: a process may open its own again, as /dev/stdout.
func (h *handler) giveUsers(first uint32) error {
	if first == 0 || h.options == nil {
		return nil
	}
	return h.change(func(options *runcoptions.Options) { options.IoUid, options.IoGid = first, first })
}

// driveBy has runc leave the container's cgroup to who makes the pod's.
func (h *handler) driveBy(driver oci.Driver) error {
	if driver != oci.Systemd {
		return nil
	}
	if h.options == nil {
		return &runtime.ReasonError{Reason: "FailedCreatePodSandBox", Err: fmt.Errorf("runtime %s cannot be told to have its cgroups made by systemd", h.name)}
	}
	return h.change(func(options *runcoptions.Options) { options.SystemdCgroup = true })
}

// change makes these options the handler's, which are runc's.
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

// giveFiles gives the pod's root what podrun makes for the container, as its /etc/hosts.
func giveFiles(mounts []pod.Mount, first uint32) error {
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

// keepFlags spells out what the machine's mounts do not allow, as devices: the pod's users may not take that
// back, and the kernel refuses a mount of theirs that does not say so too.
func keepFlags(mounts []specs.Mount) error {
	for i, m := range mounts {
		if m.Type != "bind" {
			continue
		}
		var st unix.Statfs_t
		if err := unix.Statfs(m.Source, &st); err != nil {
			return fmt.Errorf("looking at the mount %s: %w", m.Source, err)
		}
		for _, flag := range []struct {
			is   int64
			name string
		}{{unix.ST_NOSUID, "nosuid"}, {unix.ST_NODEV, "nodev"}, {unix.ST_NOEXEC, "noexec"}, {unix.ST_RDONLY, "ro"}, {unix.ST_NOATIME, "noatime"}, {unix.ST_RELATIME, "relatime"}, {unix.ST_NODIRATIME, "nodiratime"}} {
			if st.Flags&flag.is != 0 && !slices.Contains(mounts[i].Options, flag.name) {
				mounts[i].Options = append(mounts[i].Options, flag.name)
			}
		}
	}
	return nil
}

// owned are the options of a root filesystem whose files' owners are among the pod's users.
func owned(first uint32) []snapshots.Opt {
	if first == 0 {
		return nil
	}
	mapping := fmt.Sprintf("0:%d:%d", first, oci.Users)
	return []snapshots.Opt{snapshots.WithLabels(map[string]string{
		snapshots.LabelSnapshotUIDMapping: mapping, snapshots.LabelSnapshotGIDMapping: mapping,
	})}
}
