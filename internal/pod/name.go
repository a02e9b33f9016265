package pod

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// The longest names: a host name in the kernel (__NEW_UTS_LEN) and a DNS label.
const (
	longestHost  = 64
	longestLabel = 63
)

// Hostname returns p's host name without a domain: the one that its spec sets, else the pod's name,
// cut to the length of a DNS label. For a pod with host networking it is only the name by which
// other pods find it.
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

// Domain returns the part after p's host name in its full name below the cluster's domain; "" if p
// has no subdomain. A hostnameOverride has no domain, as in Kubernetes.
func Domain(p *v1.Pod, cluster string) string {
	if p.Spec.Subdomain == "" || p.Spec.HostnameOverride != nil && *p.Spec.HostnameOverride != "" {
		return ""
	}
	return strings.TrimRight(p.Spec.Subdomain+"."+p.Namespace+".svc."+cluster, ".")
}

// KernelName returns the host name that p's containers see: Hostname, or the full name with
// setHostnameAsFQDN. It returns an error if the full name is too long for the kernel. With host
// networking the containers see the machine's own host name, and the result is Hostname.
func KernelName(p *v1.Pod, cluster string) (string, error) {
	name, domain := Hostname(p), Domain(p, cluster)
	if p.Spec.SetHostnameAsFQDN == nil || !*p.Spec.SetHostnameAsFQDN || domain == "" || p.Spec.HostNetwork {
		return name, nil
	}
	name += "." + domain
	if len(name) > longestHost {
		return "", fmt.Errorf("setHostnameAsFQDN: %s has %d characters, and a machine's name has %d at most",
			name, len(name), longestHost)
	}
	return name, nil
}

// HostEntry is a line of /etc/hosts: an address and its names.
type HostEntry struct {
	IP    string
	Names []string
}
