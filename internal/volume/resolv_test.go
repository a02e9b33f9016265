package volume

import (
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

func TestResolvConf(t *testing.T) {
	const host = "# ours\nsearch example.org\nnameserver 192.0.2.53\noptions timeout:1 rotate\n"
	cluster := []string{"10.96.0.10"}
	config := &v1.PodDNSConfig{
		Nameservers: []string{"192.0.2.53", "2001:db8::1"}, Searches: []string{"example.org", "more.example"},
		Options: []v1.PodDNSConfigOption{{Name: "timeout", Value: new("3")}, {Name: "edns0"}},
	}
	written := "nameserver 192.0.2.53\nsearch example.org\noptions timeout:1 rotate\n"
	inCluster := "nameserver 10.96.0.10\nsearch default.svc.cluster.local svc.cluster.local cluster.local example.org\noptions ndots:5\n"
	for name, c := range map[string]struct {
		policy      v1.DNSPolicy
		hostNetwork bool
		servers     []string
		config      *v1.PodDNSConfig
		want        string
	}{
		"default":                      {v1.DNSDefault, false, cluster, nil, written},
		"cluster first":                {v1.DNSClusterFirst, false, cluster, nil, inCluster},
		"cluster first, no cluster":    {v1.DNSClusterFirst, false, nil, nil, written},
		"cluster first, host network":  {v1.DNSClusterFirst, true, cluster, nil, written},
		"cluster first all the same":   {v1.DNSClusterFirstWithHostNet, true, cluster, nil, inCluster},
		"with host net but no cluster": {v1.DNSClusterFirstWithHostNet, true, nil, nil, written},
		"default and more": {v1.DNSDefault, false, nil, config,
			"nameserver 192.0.2.53\nnameserver 2001:db8::1\nsearch example.org more.example\noptions rotate timeout:3 edns0\n"},
		"cluster first and more": {v1.DNSClusterFirst, false, cluster, config,
			"nameserver 10.96.0.10\nnameserver 192.0.2.53\nnameserver 2001:db8::1\n" +
				"search default.svc.cluster.local svc.cluster.local cluster.local example.org more.example\noptions ndots:5 timeout:3 edns0\n"},
		"none": {v1.DNSNone, false, cluster, config,
			"nameserver 192.0.2.53\nnameserver 2001:db8::1\nsearch example.org more.example\noptions timeout:3 edns0\n"},
		"none, no cluster": {v1.DNSNone, false, nil, &v1.PodDNSConfig{Nameservers: []string{"192.0.2.1"}}, "nameserver 192.0.2.1\n"},
		"too many": {v1.DNSDefault, false, nil, &v1.PodDNSConfig{Nameservers: []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}, Searches: []string{strings.Repeat("a", 2040)}},
			"nameserver 192.0.2.53\nnameserver 192.0.2.1\nnameserver 192.0.2.2\nsearch example.org\noptions timeout:1 rotate\n"},
	} {
		f := newFixture(t)
		f.put(t, "etc/resolv.conf", host)
		f = f.with(Options{ClusterDNS: c.servers, ClusterDomain: "cluster.local"})
		p := podWith()
		p.Spec.DNSPolicy, p.Spec.HostNetwork, p.Spec.DNSConfig = c.policy, c.hostNetwork, c.config
		if got := f.etc(t, p, nil, "resolv.conf"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestSearchOfTheMachine: of the machine's search domains a pod has what the kubelet's parseResolvConf leaves of them.
func TestSearchOfTheMachine(t *testing.T) {
	const cluster = "default.svc.cluster.local svc.cluster.local cluster.local"
	for conf, want := range map[string]string{
		"search .\n":                              "",
		"domain example.org\n":                    "",
		"search . a.example. b.example\n":         "a.example b.example",
		"search a.example\ndomain b.example\n":    "a.example",
		"search a.example\nsearch b.example. .\n": "b.example",
	} {
		for _, hostNetwork := range []bool{false, true} {
			for policy, domains := range map[v1.DNSPolicy]string{
				v1.DNSDefault: want, v1.DNSClusterFirstWithHostNet: strings.TrimSpace(cluster + " " + want),
			} {
				f := newFixture(t)
				f.put(t, "etc/resolv.conf", conf+"nameserver 10.96.0.10\n")
				f = f.with(Options{ClusterDNS: []string{"10.96.0.10"}, ClusterDomain: "cluster.local"})
				p := podWith()
				p.Spec.DNSPolicy, p.Spec.HostNetwork = policy, hostNetwork
				want := "nameserver 10.96.0.10\n"
				if domains != "" {
					want += "search " + domains + "\n"
				}
				if got := strings.TrimSuffix(f.etc(t, p, nil, "resolv.conf"), "options ndots:5\n"); got != want {
					t.Errorf("%q, %s, host network %t: %q, want %q", conf, policy, hostNetwork, got, want)
				}
			}
		}
	}
}

func TestHostsOfNamedPods(t *testing.T) {
	f := newFixture(t)
	f.put(t, "etc/hosts", "127.0.0.1 localhost") // the last line unfinished
	entries := []pod.HostEntry{{IP: "10.64.0.9", Names: []string{"db", "cache"}}, {IP: "10.64.0.10", Names: []string{"cache"}}}
	f = f.with(Options{ClusterDomain: "cluster.local", Neighbours: func(*v1.Pod) []pod.HostEntry { return entries }})
	p := podWith()
	p.Spec.Hostname, p.Spec.Subdomain = "h", "s"
	p.Spec.HostAliases = []v1.HostAlias{{IP: "192.0.2.7", Hostnames: []string{"cache", "store.example"}}}
	want := "10.64.0.2\th.s.default.svc.cluster.local\th\n# hostAliases of the manifest\n192.0.2.7\tcache\tstore.example\n# pods of this machine\n10.64.0.9\tdb\n"
	if got := f.etc(t, p, []string{"10.64.0.2"}, "hosts"); !strings.HasSuffix(got, "\n"+want) {
		t.Errorf("hosts %s", got)
	}
	if got := f.etc(t, p, nil, "hostname"); got != "h\n" {
		t.Errorf("hostname %q", got)
	}
	// What is there is refreshed, and nothing is made.
	entries = entries[:0]
	if err := f.RefreshHosts(p, pod.Sandbox{IPs: []string{"10.64.0.3"}}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(f.dirs().Revision("u1").Etc() + "/hosts")
	if err != nil || !strings.HasSuffix(string(b), "\n10.64.0.3\th.s.default.svc.cluster.local\th\n# hostAliases of the manifest\n192.0.2.7\tcache\tstore.example\n") {
		t.Errorf("refreshed: %s, %v", b, err)
	}
	other := podWith()
	other.UID = "u2"
	if err := f.RefreshHosts(other, pod.Sandbox{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(f.dirs().Revision("u2").Etc()); !os.IsNotExist(err) {
		t.Errorf("a pod's directory was made: %v", err)
	}
	p.Spec.HostNetwork = true
	if got, want := f.etc(t, p, nil, "hosts"), header+"127.0.0.1 localhost\n# hostAliases of the manifest\n192.0.2.7\tcache\tstore.example\n"; got != want {
		t.Errorf("hosts in the host's network %q", got)
	}
}

// TestNewestHosts: a start that has read the names of others before they changed does not write them over the newer ones.
func TestNewestHosts(t *testing.T) {
	f := newFixture(t)
	p := podWith()
	f.etc(t, p, nil, "hosts")
	starts, refreshed := make(chan struct{}), make(chan error, 1)
	var asked atomic.Int32
	f = f.with(Options{Neighbours: func(*v1.Pod) []pod.HostEntry {
		name := "new"
		if asked.Add(1) == 1 {
			name = "old"
			close(starts)
			select { // the other has all the time that it may need
			case err := <-refreshed:
				refreshed <- err
			case <-time.After(200 * time.Millisecond):
			}
		}
		return []pod.HostEntry{{IP: "10.64.0.9", Names: []string{name}}}
	}})
	go func() {
		<-starts
		refreshed <- f.RefreshHosts(p, pod.Sandbox{})
	}()
	f.etc(t, p, nil, "hosts")
	if err := <-refreshed; err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(f.dirs().Revision("u1").Etc() + "/hosts"); err != nil || !strings.HasSuffix(string(b), "\tnew\n") {
		t.Errorf("%s, %v", b, err)
	}
}
