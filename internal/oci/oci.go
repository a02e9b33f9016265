// Package oci turns a pod's container into the OCI runtime spec that runs it, with Kubernetes'
// defaults. It is pure: it looks up no user name, reads no file, and checks no mount source; the runtime
// adapter does.
package oci

import (
	"fmt"
	"slices"

	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Input is everything that a spec is made of.
type Input struct {
	Pod       *v1.Pod
	Container *v1.Container
	// Image is the config of the image to run.
	Image imagespec.ImageConfig
	// ID is the instance's; it names the cgroup.
	ID string
	// Group is shared by all instances that one shim shall serve.
	Group      string
	Namespaces Namespaces
	// Hostname is what the container sees as the machine's name.
	Hostname string
	// User is who UserName's name stands for in the image, with its groups there; the zero value is root.
	User specs.User
	// Env are the container's own variables, resolved.
	Env []pod.Variable
	// Mounts are in the order that the manifest has them.
	Mounts []pod.Mount
	// CgroupV2 says that the machine has the unified hierarchy.
	CgroupV2 bool
	// Driver is that of the pod's cgroup.
	Driver  Driver
	Machine Machine
}

// Namespaces are the paths of the namespaces that a sandbox pinned. With host networking, Network and
// UTS are the host's and not used.
type Namespaces struct {
	Network, IPC, UTS string
	// PID is used where the pod's containers share one.
	PID string
	// User is of the pod's own users, of which the first is the machine's FirstUser; "" where they are the machine's.
	User      string
	FirstUser uint32
	// Shm is the directory that all containers of the pod have as /dev/shm; "" for one of each one's own.
	Shm string
}

// version is the oldest that has all that is used here, so that every runtime takes it.
const version = "1.0.2"

// AnnotationGroup makes the runc shim serve all containers that carry the same value.
const AnnotationGroup = "io.containerd.runc.v2.group"

// Build returns the spec. An error means that the container cannot be run as it is written.
func Build(in Input) (*specs.Spec, error) {
	args, err := commandLine(in)
	if err != nil {
		return nil, err
	}
	namespaces, err := namespaces(in)
	if err != nil {
		return nil, err
	}
	spec := &specs.Spec{
		Version: version,
		Root:    &specs.Root{Path: "rootfs"},
		Process: &specs.Process{
			Terminal:    in.Container.TTY,
			Args:        args,
			Env:         environment(in),
			Cwd:         workingDir(in),
			OOMScoreAdj: new(oomScoreAdj(in)),
		},
		Mounts: mounts(in.Mounts, in.Namespaces.Shm),
		Linux: &specs.Linux{
			RootfsPropagation: rootPropagation(in.Mounts),
			CgroupsPath:       in.Driver.cgroupsPath(in.Pod, in.ID),
			Namespaces:        namespaces,
			Resources:         resources(in),
		},
	}
	if err := setUsers(spec, in); err != nil {
		return nil, err
	}
	if err := secure(spec, in); err != nil {
		return nil, err
	}
	if !in.Pod.Spec.HostNetwork {
		spec.Hostname = in.Hostname
	}
	if in.Group != "" {
		spec.Annotations = map[string]string{AnnotationGroup: in.Group}
	}
	return spec, nil
}

func namespaces(in Input) ([]specs.LinuxNamespace, error) {
	out := []specs.LinuxNamespace{{Type: specs.MountNamespace}}
	share := in.Pod.Spec.ShareProcessNamespace
	shared := share != nil && *share
	if !in.Pod.Spec.HostPID && !shared {
		out = slices.Insert(out, 0, specs.LinuxNamespace{Type: specs.PIDNamespace})
	}
	if in.CgroupV2 {
		// Under v1 a cgroup namespace shows the container the wrong hierarchy in /proc/self/cgroup.
		out = append(out, specs.LinuxNamespace{Type: specs.CgroupNamespace})
	}
	var pinned []specs.LinuxNamespace
	if shared {
		pinned = append(pinned, specs.LinuxNamespace{Type: specs.PIDNamespace, Path: in.Namespaces.PID})
	}
	if !in.Pod.Spec.HostIPC {
		pinned = append(pinned, specs.LinuxNamespace{Type: specs.IPCNamespace, Path: in.Namespaces.IPC})
	}
	if !in.Pod.Spec.HostNetwork {
		pinned = append(pinned,
			specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: in.Namespaces.Network},
			specs.LinuxNamespace{Type: specs.UTSNamespace, Path: in.Namespaces.UTS})
	}
	for _, ns := range pinned {
		if ns.Path == "" {
			// Without a path the container would get a namespace of its own, cut off from its pod.
			return nil, fmt.Errorf("the pod's %s namespace is missing", ns.Type)
		}
	}
	return append(out, pinned...), nil
}
