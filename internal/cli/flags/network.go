package flags

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"podrun.io/podrun/internal/agent"
)

// Network are the flags for the network and the DNS of pods.
type Network struct {
	clusterDNS    []string
	clusterDomain string
	cniConfDir    string
	cniBinDirs    []string
	routeToPods   bool
}

// Add adds the flags to f.
func (n *Network) Add(f *pflag.FlagSet) {
	f.StringSliceVar(&n.clusterDNS, "cluster-dns", nil,
		"IP addresses of the DNS servers for pods with dnsPolicy ClusterFirst (default: the host's)")
	f.StringVar(&n.cniConfDir, "cni-conf-dir", "/etc/cni/net.d",
		"directory of CNI configurations; podrun uses its own bridge if this is empty,\n"+
			"or if the directory has no configurations but those of podman and nerdctl")
	f.StringArrayVar(&n.cniBinDirs, "cni-bin-dir", []string{"/opt/cni/bin", "/usr/lib/cni"},
		"directory of CNI plugins; repeatable")
	f.BoolVar(&n.routeToPods, "route-to-pods", false,
		"let other machines, and other networks of this machine, reach all ports of pods at the pods'\n"+
			"own addresses, not only published ports (only with podrun's own bridge)")
	f.StringVar(&n.clusterDomain, "cluster-domain", "cluster.local", "DNS domain of the pods' full names")
}

// Options checks the flags and sets the options of the agent.
func (n *Network) Options(o *agent.Options) error {
	o.CNIConfDir, o.CNIBinDirs, o.RouteToPods = n.cniConfDir, n.cniBinDirs, n.routeToPods
	for _, text := range n.clusterDNS {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("--cluster-dns %q: must be an IP address", text)
		}
		o.ClusterDNS = append(o.ClusterDNS, addr.String())
	}
	o.ClusterDomain = strings.Trim(n.clusterDomain, ".")
	if problems := validation.IsDNS1123Subdomain(o.ClusterDomain); o.ClusterDomain != "" && len(problems) > 0 {
		return fmt.Errorf("--cluster-domain %q: %s", n.clusterDomain, rule(problems[0]))
	}
	return nil
}
