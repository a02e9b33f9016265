package main

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/oci"
)

// pins is the directory of all namespaces of a pod, and firstUser is the first host user ID of a
// user namespace, in the OCI specs that are built here. Anything outside of them belongs to the
// host.
const (
	pins      = "/pins/"
	firstUser = 1 << 20
)

// escapes returns the privileges that containers have although level restricted accepts their pods
// and forbids them. It inspects the OCI specs with which the containers run, so it also covers
// features that are unknown to Kubernetes' policy.
func escapes(pods []*v1.Pod) []string {
	var found []string
	for _, p := range pods {
		for _, containers := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range containers {
				for _, image := range []string{"", "0", "root", "1000", "0:0"} {
					found = append(found, escapesOf(p, &containers[i], image)...)
				}
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// escapesOf returns the escapes of one container with an image whose config has the user imageUser.
func escapesOf(p *v1.Pod, c *v1.Container, imageUser string) []string {
	// A user name that is no number counts as root, because the image decides which ID it has.
	owner, _, _ := strings.Cut(oci.UserName(p, c, imageUser), ":")
	uid, _ := strconv.ParseUint(owner, 10, 32)
	filter := &specs.LinuxSeccomp{DefaultAction: specs.ActErrno}
	in := oci.Input{
		Pod: p, Container: c, ID: "id", CgroupV2: true, User: specs.User{UID: uint32(uid)},
		Image:      imagespec.ImageConfig{User: imageUser, Entrypoint: []string{"/entry"}},
		Namespaces: oci.Namespaces{Network: pins + "net", IPC: pins + "ipc", UTS: pins + "uts", PID: pins + "pid"},
		Machine: oci.Machine{
			Capabilities: []string{"CAP_SYS_ADMIN"}, Devices: []specs.LinuxDevice{{Path: "/dev/sda"}}, Memory: 1 << 30,
			DefaultSeccomp:   func(*specs.Spec) *specs.LinuxSeccomp { return filter },
			LocalhostSeccomp: filter,
		},
	}
	if p.Spec.HostUsers != nil && !*p.Spec.HostUsers {
		in.Namespaces.User, in.Namespaces.FirstUser = pins+"user", firstUser
	}
	spec, err := oci.Build(in)
	if err != nil {
		return nil // the container does not start
	}
	var found []string
	for _, what := range slices.Concat(rights(spec), isolation(spec), machine(spec)) {
		found = append(found, fmt.Sprintf("%s, of an image with user %q: %s", c.Name, imageUser, what))
	}
	return found
}

// rights returns the privileges of the container's process that a restricted one must not have.
func rights(spec *specs.Spec) []string {
	var found []string
	process := spec.Process
	caps := process.Capabilities
	for _, name := range slices.Concat(caps.Bounding, caps.Effective, caps.Permitted, caps.Inheritable, caps.Ambient) {
		if name != "CAP_NET_BIND_SERVICE" {
			found = append(found, "has "+name)
		}
	}
	if !process.NoNewPrivileges {
		found = append(found, "may gain privileges")
	}
	if spec.Linux.Seccomp == nil {
		found = append(found, "has no seccomp profile")
	}
	mapped := len(spec.Linux.UIDMappings) > 0 && len(spec.Linux.GIDMappings) > 0
	for _, m := range slices.Concat(spec.Linux.UIDMappings, spec.Linux.GIDMappings) {
		mapped = mapped && m.HostID >= firstUser
	}
	if process.User.UID == 0 && !mapped {
		found = append(found, "is the machine's root")
	}
	return found
}

// isolation returns the namespaces of the host and the files of the kernel to which the process has
// access.
func isolation(spec *specs.Spec) []string {
	var found []string
	own := map[specs.LinuxNamespaceType]bool{}
	for _, ns := range spec.Linux.Namespaces {
		own[ns.Type] = true
		if ns.Path != "" && !strings.HasPrefix(ns.Path, pins) {
			found = append(found, "is in the namespace "+ns.Path)
		}
	}
	for _, ns := range []specs.LinuxNamespaceType{specs.MountNamespace, specs.PIDNamespace, specs.IPCNamespace,
		specs.NetworkNamespace, specs.UTSNamespace, specs.CgroupNamespace} {
		if !own[ns] {
			found = append(found, "is in the machine's "+string(ns)+" namespace")
		}
	}
	for _, hidden := range []string{"/proc/kcore", "/proc/keys", "/sys/firmware"} {
		if !slices.Contains(spec.Linux.MaskedPaths, hidden) {
			found = append(found, "sees "+hidden)
		}
	}
	for _, kept := range []string{"/proc/sys", "/proc/sysrq-trigger"} {
		if !slices.Contains(spec.Linux.ReadonlyPaths, kept) {
			found = append(found, "writes "+kept)
		}
	}
	return found
}

// machine returns the devices, mounts, hooks and other settings by which a container has access to
// the host.
func machine(spec *specs.Spec) []string {
	var found []string
	if len(spec.Linux.Devices) > 0 {
		found = append(found, "has devices")
	}
	for _, rule := range spec.Linux.Resources.Devices {
		if rule.Allow {
			found = append(found, "may use devices")
		}
	}
	for _, m := range spec.Mounts {
		if m.Type == "bind" || (m.Type == "sysfs" || m.Type == "cgroup") && !slices.Contains(m.Options, "ro") {
			found = append(found, "has the mount "+m.Destination)
		}
	}
	if spec.Hooks != nil {
		found = append(found, "has hooks")
	}
	if len(spec.Annotations) > 0 {
		found = append(found, "has annotations for the runtime") // as crun's run.oci.hooks
	}
	if len(spec.Linux.Sysctl) > 0 {
		found = append(found, "has the runtime set sysctls")
	}
	if at := path.Clean(spec.Linux.CgroupsPath); !strings.HasPrefix(at, oci.Cgroupfs.Root()+"/") {
		found = append(found, "is in the cgroup "+at)
	}
	return found
}
