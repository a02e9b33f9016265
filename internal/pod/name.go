package pod

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Longest names, as the kernel (the host's, __NEW_UTS_LEN) and DNS (a label) have them.
const (
	longestHost  = 64
	longestLabel = 63
)

// Hostname is p's name on the network without a domain: the one that it asks for, else its own, cut to
// what DNS allows. A pod with host networking has it for other pods only.
func Hostname(p *v1.Pod) string {
	switch {
	case p.Spec.HostnameOverride != nil && *p.Spec.HostnameOverride != "":
		return *p.Spec.HostnameOverride
	case p.Spec.Hostname != "":
		return p.Spec.Hostname
	}
	name := p.Name
	if len(name) > longestLabel {
		name = name[:longestLabel]
	}
	return strings.TrimRight(name, "-.")
}

// Domain is what follows p's hostname in its full name below the cluster's domain; "" when it has no
// subdomain. A hostnameOverride stands alone, as in Kubernetes.
func Domain(p *v1.Pod, cluster string) string {
	if p.Spec.Subdomain == "" || p.Spec.HostnameOverride != nil && *p.Spec.HostnameOverride != "" {
		return ""
	}
	return strings.TrimRight(p.Spec.Subdomain+"."+p.Namespace+".svc."+cluster, ".")
}

// KernelName is what p's containers see as the machine's name: the hostname, or with setHostnameAsFQDN the
// full name, which must then be short enough for the kernel. With host networking they see the machine's own,
// and this is the hostname.
func KernelName(p *v1.Pod, cluster string) (string, error) {
	name, domain := Hostname(p), Domain(p, cluster)
	if p.Spec.SetHostnameAsFQDN == nil || !*p.Spec.SetHostnameAsFQDN || domain == "" || p.Spec.HostNetwork {
		return name, nil
	}
	name += "." + domain
	if len(name) > longestHost {
		return "", fmt.Errorf("setHostnameAsFQDN: %s has %d characters, and a machine's name has %d at most", name, len(name), longestHost)
	}
	return name, nil
}

// HostEntry is a line of /etc/hosts: an address and the names that it has.
type HostEntry struct {
	IP    string
	Names []string
}
