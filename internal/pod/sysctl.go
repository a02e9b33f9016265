package pod

import (
	"slices"
	"strings"

	"k8s.io/component-helpers/node/util/sysctl"
)

// SafeSysctl reports whether a pod may set the kernel parameter: it is namespaced and harmless to
// other pods by Kubernetes' list, or the node allows it by name or by a prefix that ends in *.
func SafeSysctl(name string, allowed []string) bool {
	name = sysctl.NormalizeName(name)
	if slices.Contains([]string{
		"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies",
		"net.ipv4.ping_group_range",
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

// SysctlNamespace returns the kind of namespace that a kernel parameter, or a prefix of parameters
// that ends in *, belongs to: "Net", "IPC" or, if setting it would change the whole machine, "".
func SysctlNamespace(name string) string {
	ns, _, _ := sysctl.GetNamespace(name)
	return string(ns)
}

// SysctlFile returns the path of a kernel parameter below /proc/sys. If the first separator in the
// name is a dot, dots separate the parts and slashes stand for dots in them; if it is a slash, it
// is the other way round.
func SysctlFile(name string) string {
	return strings.NewReplacer(".", "/", "/", ".").Replace(sysctl.NormalizeName(name))
}
