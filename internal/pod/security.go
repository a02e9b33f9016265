package pod

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// MaxGroups is the maximum number of groups that a process can be in on Linux.
const MaxGroups = 65536

// Security returns the security context that c runs under: its own fields take precedence over the
// pod's.
func Security(p *v1.Pod, c *v1.Container) v1.SecurityContext {
	var out v1.SecurityContext
	if c.SecurityContext != nil {
		out = *c.SecurityContext
	}
	sc := p.Spec.SecurityContext
	if sc == nil {
		return out
	}
	orElse(&out.RunAsUser, sc.RunAsUser)
	orElse(&out.RunAsGroup, sc.RunAsGroup)
	orElse(&out.RunAsNonRoot, sc.RunAsNonRoot)
	orElse(&out.SeccompProfile, sc.SeccompProfile)
	orElse(&out.AppArmorProfile, sc.AppArmorProfile)
	orElse(&out.SELinuxOptions, sc.SELinuxOptions)
	return out
}

func orElse[T any](to **T, value *T) {
	if *to == nil {
		*to = value
	}
}

// Privileged reports whether c is a privileged container.
func Privileged(c *v1.Container) bool {
	return c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
}

// IsCapability reports whether name, with its prefix CAP_, is a Linux capability. The list is that
// of Linux 5.9; no capability has been added since.
func IsCapability(name string) bool {
	return slices.Contains([]string{
		"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID",
		"CAP_SETUID", "CAP_SETPCAP", "CAP_LINUX_IMMUTABLE", "CAP_NET_BIND_SERVICE", "CAP_NET_BROADCAST",
		"CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_IPC_LOCK", "CAP_IPC_OWNER", "CAP_SYS_MODULE", "CAP_SYS_RAWIO",
		"CAP_SYS_CHROOT", "CAP_SYS_PTRACE", "CAP_SYS_PACCT", "CAP_SYS_ADMIN", "CAP_SYS_BOOT", "CAP_SYS_NICE",
		"CAP_SYS_RESOURCE", "CAP_SYS_TIME", "CAP_SYS_TTY_CONFIG", "CAP_MKNOD", "CAP_LEASE", "CAP_AUDIT_WRITE",
		"CAP_AUDIT_CONTROL", "CAP_SETFCAP", "CAP_MAC_OVERRIDE", "CAP_MAC_ADMIN", "CAP_SYSLOG", "CAP_WAKE_ALARM",
		"CAP_BLOCK_SUSPEND", "CAP_AUDIT_READ", "CAP_PERFMON", "CAP_BPF", "CAP_CHECKPOINT_RESTORE",
	}, name)
}
