package oci

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Machine is what the machine provides to containers that request it.
type Machine struct {
	// Capabilities are all capabilities that a container can get here, for privileged containers
	// and those that add ALL.
	Capabilities []string
	// Devices are all devices of the machine.
	Devices []specs.LinuxDevice
	// SeccompByDefault reports that a container without a seccomp profile gets RuntimeDefault.
	SeccompByDefault bool
	// DefaultSeccomp returns the RuntimeDefault profile for a spec whose capabilities are set.
	DefaultSeccomp func(*specs.Spec) *specs.LinuxSeccomp
	// LocalhostSeccomp is the profile of type Localhost that the container refers to.
	LocalhostSeccomp *specs.LinuxSeccomp
	// Memory is the memory of the machine in bytes.
	Memory int64
	// LowestOOMScoreAdj is the lowest oom_score_adj that podrun can set here.
	LowestOOMScoreAdj int
	// SwapLimits reports that the swap usage of a cgroup can be limited.
	SwapLimits bool
	// OOMPolicy reports that scopes of this machine's systemd have the property OOMPolicy.
	OOMPolicy bool
	// PageSizes are the machine's huge page sizes in bytes; empty if their use cannot be limited.
	PageSizes []int64
	// LimitsReservations reports that on version 2 their reservation can be limited, too.
	LimitsReservations bool
	// ProcessLabel and FileLabel are the SELinux labels; "" means none.
	ProcessLabel, FileLabel string
	// AppArmorProfile is the name of the AppArmor profile; "" if AppArmor is not in use.
	AppArmorProfile string
}

// UserName returns the user that a container runs as, in the format of an image's USER: the
// security context's user and group, else the image's. If the security context sets the user, the
// image's group is ignored, as in Kubernetes.
func UserName(p *v1.Pod, c *v1.Container, imageUser string) string {
	user, group, _ := strings.Cut(imageUser, ":")
	sc := pod.Security(p, c)
	if sc.RunAsUser != nil {
		user, group = strconv.FormatInt(*sc.RunAsUser, 10), ""
	}
	if sc.RunAsGroup != nil {
		group = strconv.FormatInt(*sc.RunAsGroup, 10)
	}
	if user == "" {
		user = "0"
	}
	if group != "" {
		return user + ":" + group
	}
	return user
}

// user returns in.User with the pod's supplemental groups added. With the policy Strict the groups
// from the image are left out.
func user(in Input) specs.User {
	out := in.User
	sc := in.Pod.Spec.SecurityContext
	if sc == nil {
		return out
	}
	out.AdditionalGids = slices.Clone(out.AdditionalGids)
	if sc.SupplementalGroupsPolicy != nil && *sc.SupplementalGroupsPolicy == v1.SupplementalGroupsPolicyStrict {
		out.AdditionalGids = []uint32{out.GID}
	}
	groups := sc.SupplementalGroups
	if sc.FSGroup != nil {
		groups = append(slices.Clone(groups), *sc.FSGroup)
	}
	member := map[uint32]bool{} // there may be thousands
	for _, g := range out.AdditionalGids {
		member[g] = true
	}
	for _, g := range groups {
		if !member[uint32(g)] {
			member[uint32(g)] = true
			out.AdditionalGids = append(out.AdditionalGids, uint32(g))
		}
	}
	return out
}

// mostCompared is the maximum number of comparisons of groups that a process may cost: runc compares
// each of its groups with each line of the image's /etc/group, which takes seconds for these.
const mostCompared = 50_000_000

// verifyGroups returns an error for a user with whose groups no process can start, or only after
// minutes: the kernel refuses them, or the image has a very long /etc/group.
func verifyGroups(user specs.User, entries int) error {
	groups := len(user.AdditionalGids)
	if groups > pod.MaxGroups {
		return fmt.Errorf("the process would be in %d groups, those of the image included; the maximum is %d",
			groups, pod.MaxGroups)
	}
	if groups*entries > mostCompared {
		return fmt.Errorf(
			"the process would be in %d groups, and /etc/group of the image has %d lines: together they are too many; "+
				"the product may be at most %d", groups, entries, mostCompared)
	}
	return nil
}

// secure applies the security context to the spec.
func secure(spec *specs.Spec, in Input) error {
	sc := pod.Security(in.Pod, in.Container)
	if err := verifyNonRoot(sc, in.Image.User); err != nil {
		return err
	}
	caps, err := capabilities(sc, in.Machine.Capabilities)
	if err != nil {
		return err
	}
	spec.Process.Capabilities = &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps}
	spec.Process.User = user(in)
	if err := verifyGroups(spec.Process.User, in.GroupEntries); err != nil {
		return err
	}
	spec.Process.NoNewPrivileges = sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation
	spec.Process.ApparmorProfile = in.Machine.AppArmorProfile
	spec.Process.SelinuxLabel, spec.Linux.MountLabel = in.Machine.ProcessLabel, in.Machine.FileLabel
	spec.Root.Readonly = sc.ReadOnlyRootFilesystem != nil && *sc.ReadOnlyRootFilesystem
	if isPrivileged(sc) {
		privilege(spec, in.Machine.Devices)
		return nil
	}
	if sc.ProcMount == nil || *sc.ProcMount == v1.DefaultProcMount {
		spec.Linux.MaskedPaths, spec.Linux.ReadonlyPaths = maskedPaths(), readonlyPaths()
	}
	return setSeccomp(spec, sc.SeccompProfile, in.Machine)
}

func isPrivileged(sc v1.SecurityContext) bool { return sc.Privileged != nil && *sc.Privileged }

// privilege removes the restrictions of a container, except for its namespaces. No seccomp profile
// applies, whichever the manifest sets, as in Kubernetes.
func privilege(spec *specs.Spec, devices []specs.LinuxDevice) {
	spec.Linux.Devices = devices
	spec.Linux.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}
	for i := range spec.Mounts {
		if m := &spec.Mounts[i]; m.Type == "sysfs" || m.Type == "cgroup" {
			m.Options = slices.DeleteFunc(m.Options, func(o string) bool { return o == "ro" })
		}
	}
}

func setSeccomp(spec *specs.Spec, profile *v1.SeccompProfile, m Machine) error {
	if profile == nil && m.SeccompByDefault {
		profile = &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault}
	}
	if profile == nil {
		return nil
	}
	switch profile.Type {
	case v1.SeccompProfileTypeRuntimeDefault:
		spec.Linux.Seccomp = m.DefaultSeccomp(spec)
	case v1.SeccompProfileTypeLocalhost:
		if m.LocalhostSeccomp == nil {
			return errors.New("the seccomp profile is missing")
		}
		spec.Linux.Seccomp = m.LocalhostSeccomp
	}
	return nil
}

// verifyNonRoot enforces runAsNonRoot by numeric user IDs only. A user name in the image is not
// trusted, because the image itself maps it to an ID.
func verifyNonRoot(sc v1.SecurityContext, imageUser string) error {
	if sc.RunAsNonRoot == nil || !*sc.RunAsNonRoot {
		return nil
	}
	if sc.RunAsUser != nil {
		if *sc.RunAsUser == 0 {
			return errors.New("runAsNonRoot is set, but runAsUser is 0")
		}
		return nil
	}
	name, _, _ := strings.Cut(imageUser, ":")
	uid, err := strconv.ParseUint(name, 10, 32)
	switch {
	case name == "" || err == nil && uid == 0:
		return errors.New("runAsNonRoot is set, but the image runs as root; set runAsUser")
	case err != nil:
		return fmt.Errorf("runAsNonRoot is set, but the image's user %q is not a number,"+
			" so it cannot be verified that it is not root; set runAsUser", name)
	}
	return nil
}

// capabilities returns the capabilities of the process. ALL is added or dropped before single
// capabilities are.
func capabilities(sc v1.SecurityContext, all []string) ([]string, error) {
	out := defaultCapabilities()
	if isPrivileged(sc) {
		return slices.Clone(all), nil
	}
	if sc.Capabilities == nil {
		return out, nil
	}
	add, allAdded, err := capabilityNames(sc.Capabilities.Add)
	if err != nil {
		return nil, err
	}
	drop, allDropped, err := capabilityNames(sc.Capabilities.Drop)
	if err != nil {
		return nil, err
	}
	if allAdded {
		out = slices.Clone(all)
	}
	if allDropped {
		out = []string{}
	}
	for _, name := range add {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return slices.DeleteFunc(out, func(name string) bool { return slices.Contains(drop, name) }), nil
}

// capabilityNames returns the kernel's names of the capabilities, without ALL, and whether ALL is
// among them. An unknown name is an error: if it were ignored in drop, the container would keep
// more than its manifest allows.
func capabilityNames(in []v1.Capability) (names []string, all bool, err error) {
	for _, c := range in {
		name := strings.ToUpper(string(c))
		if name == "ALL" {
			all = true
			continue
		}
		name = "CAP_" + strings.TrimPrefix(name, "CAP_")
		if !pod.IsCapability(name) {
			return nil, false, fmt.Errorf("there is no capability %q", c)
		}
		names = append(names, name)
	}
	return names, all, nil
}

// defaultCapabilities returns the capabilities of a container whose manifest sets none.
func defaultCapabilities() []string {
	return []string{
		"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID",
		"CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL",
		"CAP_AUDIT_WRITE",
	}
}

// maskedPaths returns the paths that reveal information about the machine or can change it,
// whatever the container's capabilities are.
func maskedPaths() []string {
	return []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
		"/sys/devices/virtual/powercap", "/sys/firmware",
	}
}

func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}
