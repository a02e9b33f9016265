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

// Machine is what this machine gives to a container that asks for it.
type Machine struct {
	// Capabilities are all that a container can get here; for privileged ones and those that add ALL.
	Capabilities []string
	// Devices are all of the machine's.
	Devices []specs.LinuxDevice
	// SeccompByDefault says that a container without a profile gets RuntimeDefault's.
	SeccompByDefault bool
	// DefaultSeccomp makes the profile of RuntimeDefault for a spec whose capabilities are set.
	DefaultSeccomp func(*specs.Spec) *specs.LinuxSeccomp
	// LocalhostSeccomp is the profile that the container names.
	LocalhostSeccomp *specs.LinuxSeccomp
	// Memory is what the machine has, in bytes.
	Memory int64
	// LowestOOMScoreAdj is the lowest oom_score_adj that a process can be given here.
	LowestOOMScoreAdj int
	// SwapLimits says that a cgroup's use of swap can be limited.
	SwapLimits bool
	// PageSizes are the sizes of huge pages that the machine has, in bytes, if their use can be limited.
	PageSizes []int64
	// ProcessLabel and FileLabel are SELinux'; "" for none.
	ProcessLabel, FileLabel string
	// AppArmorProfile is the name of the profile to run under; "" where AppArmor is not in use.
	AppArmorProfile string
}

// UserName is who a container runs as, in the form of an image's USER: the security context's user and
// group, else the image's. A user of the context's leaves out the image's group, as in Kubernetes.
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

// user is in.User with the groups that the pod asks for. Under the policy Strict it has no others.
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
	for _, g := range groups {
		if !slices.Contains(out.AdditionalGids, uint32(g)) {
			out.AdditionalGids = append(out.AdditionalGids, uint32(g))
		}
	}
	return out
}

// secure makes the spec as the security context wants it.
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

// privilege takes away what keeps a container from its machine, but for the namespaces. No seccomp profile
// applies, whichever is asked for, as in Kubernetes.
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

// verifyNonRoot holds runAsNonRoot by the numbers: a name in an image says nothing that can be trusted,
// since the image says what it stands for.
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
		return fmt.Errorf("runAsNonRoot is set, but the image's user %q is not a number, so nothing vouches that it is not root; set runAsUser", name)
	}
	return nil
}

// capabilities are those of the process. ALL is added or dropped before single ones are.
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

// capabilityNames are the kernel's. One that it does not know is an error: left out of drop, it would
// leave the container more than its manifest says.
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

// defaultCapabilities are those of a container that asks for none.
func defaultCapabilities() []string {
	return []string{
		"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID",
		"CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL",
		"CAP_AUDIT_WRITE",
	}
}

// maskedPaths tell about the machine, or change it, whatever the container's rights.
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
