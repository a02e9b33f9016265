package volume

import (
	"bytes"
	"cmp"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// What resolvers read of resolv.conf at most, as Kubernetes cuts it: addresses, domains, and the domains'
// characters in all.
const (
	maxServers        = 3
	maxDomains        = 32
	maxDomainsLength  = 2048
	clusterFirstNdots = "ndots:5" // so that names with a few dots are looked for in the cluster first
)

// resolvConf is the pod's /etc/resolv.conf, by its dnsPolicy and dnsConfig.
func (v *Volumes) resolvConf(p *v1.Pod) ([]byte, error) {
	s := &p.Spec
	policy := cmp.Or(s.DNSPolicy, v1.DNSClusterFirst)
	if len(v.clusterDNS) == 0 || policy == v1.DNSClusterFirst && s.HostNetwork {
		if policy != v1.DNSNone {
			policy = v1.DNSDefault
		}
	}
	var host []byte
	if policy != v1.DNSNone {
		var err error
		if host, err = v.hostResolvConf(s.HostNetwork); err != nil {
			return nil, err
		}
		if policy == v1.DNSDefault && s.DNSConfig == nil {
			return host, nil
		}
	}
	r := parseResolver(host)
	if policy == v1.DNSClusterFirst || policy == v1.DNSClusterFirstWithHostNet {
		r = resolver{
			servers: v.clusterDNS,
			domains: append(clusterDomains(p.Namespace, v.clusterDomain), r.domains...),
			options: []string{clusterFirstNdots},
		}
	}
	return r.with(s.DNSConfig).text(), nil
}

// clusterDomains are those in which a cluster's DNS has names for a namespace.
func clusterDomains(namespace, cluster string) []string {
	if cluster == "" {
		return nil
	}
	return []string{namespace + ".svc." + cluster, "svc." + cluster, cluster}
}

// resolver is what a resolv.conf says; options are as they are written, as ndots:5.
type resolver struct{ servers, domains, options []string }

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
		case "search", "domain": // the last one counts
			r.domains = fields[1:]
		case "options":
			r.options = append(r.options, fields[1:]...)
		}
	}
	return r
}

// with adds what the pod asks for; of an option the pod's value counts.
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

// text writes a resolv.conf, without what no resolver would read.
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

// hostResolvConf is the host's resolv.conf. A resolver on the host's loopback is out of a pod's reach; where
// that is all there is, systemd-resolved's own list of resolvers is taken, if it runs.
func (v *Volumes) hostResolvConf(hostNetwork bool) ([]byte, error) {
	conf, err := v.hostFile("etc/resolv.conf")
	if err != nil || hostNetwork || !onlyLoopback(conf) {
		return conf, err
	}
	behind, err := v.hostFile("run/systemd/resolve/resolv.conf")
	if err != nil || len(behind) == 0 {
		return conf, err
	}
	return behind, nil
}

// onlyLoopback reports that a resolv.conf names resolvers, all of them on the loopback.
func onlyLoopback(conf []byte) bool {
	servers := parseResolver(conf).servers
	return len(servers) > 0 && !slices.ContainsFunc(servers, func(s string) bool {
		addr, err := netip.ParseAddr(s)
		return err != nil || !addr.Unmap().IsLoopback()
	})
}
