package pod

import (
	"slices"
	"strings"

	"k8s.io/component-helpers/node/util/sysctl"
)

// SafeSysctl reports that a pod may set the kernel parameter: it is namespaced and cannot do harm to other
// pods, by Kubernetes' list, or the node allows it, by name or by a prefix that ends in *.
func SafeSysctl(name string, allowed []string) bool {
	name = sysctl.NormalizeName(name)
	if slices.Contains([]string{
		"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
		"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time",
		"net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes",
		"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
	}, name) {
		return true
	}
	return slices.ContainsFunc(allowed, func(pattern string) bool {
		prefix, isPrefix := strings.CutSuffix(sysctl.NormalizeName(pattern), "*")
		return isPrefix && strings.HasPrefix(name, prefix) || name == prefix
	})
}

// SysctlNamespace is the kind of namespace that a kernel parameter, or a prefix of some that ends in *, is
// of: "Net", "IPC" or, where setting it would change the whole machine, "".
func SysctlNamespace(name string) string {
	ns, _, _ := sysctl.GetNamespace(name)
	return string(ns)
}

// SysctlFile is where a kernel parameter is, below /proc/sys. In a name that begins with a dotted part dots
// separate the parts and slashes stand for dots in them, and the other way round.
func SysctlFile(name string) string {
	return strings.NewReplacer(".", "/", "/", ".").Replace(sysctl.NormalizeName(name))
}
