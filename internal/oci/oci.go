// Package oci builds the OCI runtime spec of a pod's container, with Kubernetes' defaults, and
// defines the cgroup paths and resource settings of pods and containers. It also chooses the
// seccomp profile (security.go).
//
// The package is pure: it resolves no user names, reads no files (such as seccomp profiles) and
// does not check mount sources. The packages below runtime/containerd do that, and give it the
// results as [Input] and [Machine]. Begin reading at [Build].
package oci

import (
	"fmt"
	"slices"

	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Input is everything that a spec is built from.
type Input struct {
	Pod       *v1.Pod
	Container *v1.Container
	// Image is the image config.
	Image imagespec.ImageConfig
	// ID is the instance ID; it names the cgroup.
	ID string
	// Group is the same for all instances that share a shim.
	Group      string
	Namespaces Namespaces
	// Hostname is the host name that the container sees.
	Hostname string
	// User is the result of resolving UserName in the image, with the user's groups there; the zero
	// value is root.
	User specs.User
	// GroupEntries is the number of lines of /etc/group of the image.
	GroupEntries int
	// Env are the container's own variables, resolved.
	Env []pod.Variable
	// Mounts are in the order of the manifest.
	Mounts []pod.Mount
	// CPUs are the CPUs to run on, in the kernel's format; "" if all.
	CPUs string
	// CgroupV2 reports that the machine has the unified cgroup hierarchy.
	CgroupV2 bool
	// Driver is the driver of the pod's cgroup.
	Driver  Driver
	Machine Machine
}

// Namespaces are the paths of the namespaces that a sandbox has pinned. With host networking,
// Network and UTS are the host's and not used.
type Namespaces struct {
	Network, IPC, UTS string
	// PID is used if the pod's containers share a PID namespace.
	PID string
	// User is the user namespace of the pod, whose ID 0 is FirstUser on the host; "" if the pod
	// uses the host's user IDs.
	User      string
	FirstUser uint32
	// Shm is the directory that all containers of the pod have as /dev/shm; "" if each container
	// has its own.
	Shm string
}

// version is the oldest version of the spec with everything that is used here, so that every
// runtime accepts it.
const version = "1.0.2"

// AnnotationGroup is the annotation by which the runc shim serves all containers with the same
// value.
const AnnotationGroup = "io.containerd.runc.v2.group"

// annotationProperty is the prefix of annotations by which runc gives a scope one more of systemd's properties.
const annotationProperty = "org.systemd.property."

// Build returns the runtime spec. An error means that the container cannot be run as its manifest
// is written.
func Build(in Input) (*specs.Spec, error) {
	args, err := commandLine(in)
	if err != nil {
		return nil, err
	}
	if err := verifyDestinations(in); err != nil {
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
	spec.Annotations = annotations(spec, in)
	return spec, nil
}

// annotations returns what the runtime is told beside the spec. Nothing of it is the pod's: its annotations could say
// anything to systemd.
func annotations(spec *specs.Spec, in Input) map[string]string {
	out := map[string]string{}
	if in.Group != "" {
		out[AnnotationGroup] = in.Group
	}
	if in.Driver == Systemd && in.CgroupV2 && in.Machine.OOMPolicy && !mayHaveCgroups(spec) {
		// Each time systemd reloads its configuration, it writes memory.oom.group by this policy.
		out[annotationProperty+"OOMPolicy"] = "'kill'"
		// By the policy it also counts the scope as failed after that. A failed one would stay.
		out[annotationProperty+"CollectMode"] = "'inactive-or-failed'"
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func namespaces(in Input) ([]specs.LinuxNamespace, error) {
	out := []specs.LinuxNamespace{{Type: specs.MountNamespace}}
	share := in.Pod.Spec.ShareProcessNamespace
	shared := share != nil && *share
	if !in.Pod.Spec.HostPID && !shared {
		out = slices.Insert(out, 0, specs.LinuxNamespace{Type: specs.PIDNamespace})
	}
	if in.CgroupV2 {
		// With cgroup v1 a cgroup namespace would show the container the wrong hierarchy in
		// /proc/self/cgroup.
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
			// Without a path the container would get a namespace of its own, separate from its
			// pod's.
			return nil, fmt.Errorf("the pod's %s namespace is missing", ns.Type)
		}
	}
	return append(out, pinned...), nil
}
