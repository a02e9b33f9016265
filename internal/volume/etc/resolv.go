package etc

import (
	"bytes"
	"cmp"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// The limits of a resolv.conf, as in Kubernetes: servers, search domains, and the characters of all
// search domains together.
const (
	maxServers        = 3
	maxDomains        = 32
	maxDomainsLength  = 2048
	clusterFirstNdots = "ndots:5" // so that names with a few dots are looked up in the cluster first
)

// resolvConf returns the content of the pod's /etc/resolv.conf, according to its dnsPolicy and
// dnsConfig.
func (f *Files) resolvConf(p *v1.Pod) ([]byte, error) {
	s := &p.Spec
	policy := cmp.Or(s.DNSPolicy, v1.DNSClusterFirst)
	if len(f.o.ClusterDNS) == 0 || policy == v1.DNSClusterFirst && s.HostNetwork {
		if policy != v1.DNSNone {
			policy = v1.DNSDefault
		}
	}
	var host []byte
	if policy != v1.DNSNone {
		var err error
		if host, err = f.hostResolvConf(s.HostNetwork); err != nil {
			return nil, err
		}
	}
	r := parseResolver(host)
	if policy == v1.DNSDefault && !s.HostNetwork {
		if s.DNSConfig != nil && len(s.DNSConfig.Nameservers) > 0 {
			r.servers = slices.DeleteFunc(r.servers, unreachable)
		} else {
			f.warnUnreachable(r.servers)
		}
	}
	if policy == v1.DNSClusterFirst || policy == v1.DNSClusterFirstWithHostNet {
		r = resolver{
			servers: f.o.ClusterDNS,
			domains: append(clusterDomains(p.Namespace, f.o.ClusterDomain), r.domains...),
			options: []string{clusterFirstNdots},
		}
	}
	return r.with(s.DNSConfig).text(), nil
}

// clusterDomains returns the domains in which a cluster's DNS has names for a namespace.
func clusterDomains(namespace, cluster string) []string {
	if cluster == "" {
		return nil
	}
	return []string{namespace + ".svc." + cluster, "svc." + cluster, cluster}
}

// resolver is the parsed content of a resolv.conf; options are as written there, for example
// ndots:5.
type resolver struct{ servers, domains, options []string }

// parseResolver parses a resolv.conf as the kubelet does, which ignores lines of the keyword domain.
func parseResolver(conf []byte) resolver {
	var r resolver
	for line := range strings.Lines(string(conf)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			r.servers = append(r.servers, fields[1])
		case "search": // the last line wins; musl resolves no name after a dot alone
			r.domains = nil
			for _, domain := range fields[1:] {
				if domain != "." {
					r.domains = append(r.domains, strings.TrimSuffix(domain, "."))
				}
			}
		case "options":
			r.options = append(r.options, fields[1:]...)
		}
	}
	return r
}

// with adds the pod's dnsConfig; for an option that both have, the pod's value wins.
func (r resolver) with(c *v1.PodDNSConfig) resolver {
	if c == nil {
		return r
	}
	out := resolver{servers: unique(r.servers, c.Nameservers), domains: unique(r.domains, c.Searches)}
	given := map[string]bool{}
	for _, o := range c.Options {
		given[o.Name] = true
	}
	for _, o := range r.options {
		if name, _, _ := strings.Cut(o, ":"); !given[name] {
			out.options = append(out.options, o)
		}
	}
	for _, o := range c.Options {
		if o.Value != nil && *o.Value != "" {
			out.options = append(out.options, o.Name+":"+*o.Value)
			continue
		}
		out.options = append(out.options, o.Name)
	}
	return out
}

func unique(lists ...[]string) []string {
	var out []string
	for _, s := range slices.Concat(lists...) {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// text formats a resolv.conf, without entries beyond the limits.
func (r resolver) text() []byte {
	var b bytes.Buffer
	for _, s := range r.servers[:min(len(r.servers), maxServers)] {
		b.WriteString("nameserver " + s + "\n")
	}
	domains := r.domains[:min(len(r.domains), maxDomains)]
	for len(strings.Join(domains, " ")) > maxDomainsLength {
		domains = domains[:len(domains)-1]
	}
	if len(domains) > 0 {
		b.WriteString("search " + strings.Join(domains, " ") + "\n")
	}
	if len(r.options) > 0 {
		b.WriteString("options " + strings.Join(r.options, " ") + "\n")
	}
	return b.Bytes()
}

// hostResolvConf returns the host's resolv.conf. For a pod with a network of its own, it leaves out servers
// that the pod cannot reach. If that leaves none, it returns the list of upstream servers of
// systemd-resolved instead; and if there is none either, the host's file as it is.
func (f *Files) hostResolvConf(hostNetwork bool) ([]byte, error) {
	conf, err := f.hostFile("etc/resolv.conf")
	if err != nil || hostNetwork || len(parseResolver(conf).servers) == 0 {
		return conf, err
	}
	behind, err := f.hostFile("run/systemd/resolve/resolv.conf")
	if err != nil {
		return nil, err
	}
	for _, c := range [][]byte{conf, behind} {
		if kept := withoutUnreachable(c); len(parseResolver(kept).servers) > 0 {
			return kept, nil
		}
	}
	return conf, nil
}

func withoutUnreachable(conf []byte) []byte {
	var b bytes.Buffer
	for line := range bytes.Lines(conf) {
		if !slices.ContainsFunc(parseResolver(line).servers, unreachable) {
			b.Write(line)
		}
	}
	return b.Bytes()
}

// unreachable reports whether a server of the host's resolv.conf has an address that means something else, or
// nothing, in another network namespace: one of the loopback, or of a link (with its name, as fe80::1%eth0).
// IPv4's link-local addresses are not of a link: clouds have their servers there.
func unreachable(server string) bool {
	addr, err := netip.ParseAddr(server)
	addr = addr.Unmap()
	return err == nil && (addr.IsLoopback() || addr.IsUnspecified() || addr.Is6() && addr.IsLinkLocalUnicast())
}

// warnUnreachable logs once per process that pods have no DNS, if the host's servers are all unreachable.
func (f *Files) warnUnreachable(servers []string) {
	if len(servers) == 0 || slices.ContainsFunc(servers, func(s string) bool { return !unreachable(s) }) {
		return
	}
	f.unresolved.Do(func() {
		f.o.Log.Warn("pods have no DNS: they cannot reach any server of this machine's resolv.conf; "+
			"a container gets other servers when it starts again", "servers", servers)
	})
}
