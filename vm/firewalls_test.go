package vm

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// The firewall of a table of the distribution's: its example of a workstation, and one that forwards nothing.
const (
	ownTable = `table inet own {
  chain input {
    type filter hook input priority filter; policy drop;
    ct state {established, related} accept
    iif lo accept
    meta l4proto {icmp, ipv6-icmp} accept
    tcp dport 8090 accept
  }
  chain forward { type filter hook forward priority filter; policy %s; }
  chain output { type filter hook output priority filter; }
}
`
	// The image's static program cannot resolve even a number; the machine's can, in the pod's network.
	inPod = "nsenter -n -t $(pgrep -xf 'busybox httpd -f -p 80 -h /m') "
	// asks prints the last line of what an HTTP server says. (The static wget of Debian 12 crashes.)
	asks   = `timeout 5 bash -c 'exec 3<>/dev/tcp/$0/$1; printf "GET /x HTTP/1.0\r\n\r\n" >&3; tail -n 1 <&3' %s `
	serves = `echo %s > /m/x; exec busybox httpd -f -p %d -h /m`
)

// firewall is one that others set up, and what pods can do beside it.
type firewall struct {
	name, up, down string
	port, out      bool   // a hostPort is reached; a pod reaches others
	then           string // what the administrator does where they do not; after that, both do
	flush          string // loads the firewall anew, and removes podrun's rules: they return by themselves
	reload         string // loads the firewall anew, and leaves others' rules
}

// TestHostPortsBesideFirewalls: pods are reached beside the firewalls of others, or the log says what is needed, and
// the rules of others are as they were, also when the pods are gone.
func TestHostPortsBesideFirewalls(t *testing.T) {
	m := bootServing(t)
	m.outsider()
	m.sh("systemctl stop podrun")
	// The rules that podrun's log names, as an administrator would copy them.
	const named = `journalctl _SYSTEMD_INVOCATION_ID=$(systemctl show -p InvocationID --value podrun) --no-pager |
		grep -oE 'nft insert rule [a-z0-9]* [a-zA-Z]* [a-zA-Z_]* [io]ifname [a-z0-9]* accept|firewall-cmd [a-z =-]*--add-interface=[a-z0-9]*' |
		sort -u > /tmp/named
		[ -s /tmp/named ]; cat /tmp/named; sh -eu /tmp/named`
	load := func(policy string) string {
		return fmt.Sprintf("cat > /etc/nftables.conf <<'END'\n"+ownTable+"END\nsystemctl restart nftables", policy)
	}
	for _, f := range []firewall{
		{name: "nftables", up: load("accept"), down: "nft delete table inet own", port: true, out: true,
			flush: "sed -i '1i flush ruleset' /etc/nftables.conf; systemctl restart nftables"},
		{name: "nftables-drop", up: load("drop"), down: "nft delete table inet own", then: named},
		// Its first reload adds rules of its own.
		{name: "ufw", up: "ufw --force enable; ufw allow 8090/tcp; ufw reload", down: "ufw --force disable", port: true, out: true,
			reload: "ufw reload"},
		{name: "firewalld", up: "systemctl unmask firewalld; systemctl start firewalld; firewall-cmd --add-port=8090/tcp",
			down: "systemctl stop firewalld", port: true, then: named, reload: "firewall-cmd --runtime-to-permanent; firewall-cmd --reload"},
	} {
		t.Run(f.name, func(t *testing.T) { besideFirewall(t, m, f) })
	}
}

// othersRules prints all rules but those of podrun's tables, without counters.
const othersRules = `for table in $(nft list tables | grep -v podrun | cut -d' ' -f2- | tr ' ' /); do
	nft -s list table "${table%/*}" "${table#*/}"; done`

func besideFirewall(t *testing.T, m *machine, f firewall) {
	m.sh(f.up)
	before := m.sh(othersRules)
	m.write("/etc/pods/hp.yaml", inContainer(podOf("hp", fmt.Sprintf(serves, "published", 80)),
		"ports: [{containerPort: 80, hostPort: 8080}]"))
	m.write("/etc/pods/hn.yaml", podOf("hn", fmt.Sprintf(serves, "hosts", 8090), "hostNetwork: true"))
	m.sh("systemctl start podrun")
	m.await("the pods", isReady("hp")+"; "+isReady("hn"))
	reached := func(when string, port, out bool) {
		t.Helper()
		for _, c := range []struct {
			what, script, text string
			want               bool
		}{
			{"hostNetwork", "ip netns exec out " + asks + "8090", "hosts", true},
			{"hostPort", "ip netns exec out " + asks + "8080", "published", port},
			{"from a pod", inPod + asks + "7000", "outside", out},
		} {
			for family, address := range map[int]string{4: "10.77.0.1", 6: "fd77::1"} {
				if c.what == "from a pod" {
					address = map[int]string{4: "10.77.0.2", 6: "fd77::2"}[family]
				}
				r := m.run("sh", "-c", fmt.Sprintf(c.script, address))
				if got := strings.TrimSpace(string(r.Stdout)) == c.text; got != c.want {
					t.Errorf("%s %s over IPv%d: %v, want %t", when, c.what, family, r, c.want)
				}
			}
		}
	}
	reached("at first", f.port, f.out)
	port, out := f.port, f.out
	if f.then != "" {
		if beside := withoutOurs(m.sh(othersRules)); beside != withoutOurs(before) {
			t.Errorf("rules of others beside pods at first:\n%s\nbefore:\n%s", beside, before)
		}
		port, out = true, true
		t.Logf("the administrator: %s", m.sh(f.then))
		before = ""
		reached("then", true, true)
	}
	if f.flush != "" {
		m.sh(f.flush)
		m.await("podrun's rules", "journalctl -u podrun -b --no-pager -o cat | grep 'are restored'")
		reached("flushed", port, out)
	}
	if f.reload != "" {
		m.sh(f.reload)
		time.Sleep(5 * time.Second) // podrun has time to notice
		reached("reloaded", port, out)
	}
	t.Logf("podrun's log:\n%s", m.sh(
		"journalctl -u podrun -b --no-pager -o cat | grep -i -E 'warn|nftables' | tail -5 || true"))
	during := m.sh(othersRules)
	m.sh("rm /etc/pods/hp.yaml /etc/pods/hn.yaml; systemctl stop podrun; podrun down --all")
	after := m.sh(othersRules)
	if before == "" {
		before = during
	}
	if after != before {
		t.Errorf("rules of others after the pods:\n%s\nbefore:\n%s", after, before)
	}
	if got := withoutOurs(during); got != withoutOurs(before) {
		t.Errorf("rules of others beside pods:\n%s\nbefore:\n%s", got, before)
	}
	m.sh(f.down)
}

// withoutOurs returns the rules without those that podrun documents to add to iptables' chains.
func withoutOurs(rules string) string {
	var out []string
	for line := range strings.Lines(rules) {
		if !strings.Contains(line, "podrun") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}
