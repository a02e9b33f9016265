package bridge

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/vishvananda/netns"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/network/nettest"
)

// command runs a command of the machine's in a namespace.
func command(t testing.TB, ns netns.NsHandle, line string) string {
	t.Helper()
	var out []byte
	nettest.In(t, ns, func() (err error) {
		out, err = exec.Command("sh", "-ec", line).CombinedOutput()
		if err != nil {
			t.Logf("%s: %s", line, out)
		}
		return err
	})
	return string(out)
}

// asked checks that a pod with host port 8080 for its port 80 reaches the world as the machine, and is reached.
func asked(t *testing.T, outside, pod netns.NsHandle) {
	t.Helper()
	nettest.ServeTCP(t, outside, ":90", "world")
	if got, err := nettest.Ask(pod, "tcp", "192.0.2.1:90"); got != "world 192.0.2.2" {
		t.Errorf("a pod asks the world: %q, %v", got, err)
	}
	nettest.ServeTCP(t, pod, ":80", "web")
	if got, err := nettest.Ask(outside, "tcp", "192.0.2.2:8080"); got != "web 192.0.2.1" {
		t.Errorf("the world asks a pod: %q, %v", got, err)
	}
}

// TestForwardDrop: although Docker makes the machine drop forwarded packets by default, pods reach
// other machines and are reached, and iptables still understands its own rules.
func TestForwardDrop(t *testing.T) {
	for name, c := range map[string]struct{ firewall, before, after string }{
		"policy": {"iptables-nft -P FORWARD DROP; iptables-nft -A FORWARD -i other -j ACCEPT",
			"-A FORWARD -o BRIDGE -j ACCEPT\n-A FORWARD -i BRIDGE -j ACCEPT\n-A FORWARD -i other -j ACCEPT", "-A FORWARD -i other -j ACCEPT"},
		"Docker's": {"iptables-nft -P FORWARD DROP; iptables-nft -N DOCKER-USER; iptables-nft -A FORWARD -j DOCKER-USER; iptables-nft -A DOCKER-USER -j RETURN",
			"-A FORWARD -j DOCKER-USER\n-A DOCKER-USER -o BRIDGE -j ACCEPT\n-A DOCKER-USER -i BRIDGE -j ACCEPT\n-A DOCKER-USER -j RETURN",
			"-A FORWARD -j DOCKER-USER\n-A DOCKER-USER -j RETURN"},
		"a last rule": {"iptables-nft -A FORWARD -i other -j ACCEPT; iptables-nft -A FORWARD -j REJECT --reject-with icmp-host-prohibited",
			"-A FORWARD -o BRIDGE -j ACCEPT\n-A FORWARD -i BRIDGE -j ACCEPT\n-A FORWARD -i other -j ACCEPT\n-A FORWARD -j REJECT --reject-with icmp-host-prohibited",
			"-A FORWARD -i other -j ACCEPT\n-A FORWARD -j REJECT --reject-with icmp-host-prohibited"},
		"beside a chain that cannot be read": {
			"nft 'table inet a { chain forward { type filter hook forward priority 0; meta l4proto tcp ct original proto-dst 1 drop; }; }'; " +
				"iptables-nft -P FORWARD DROP; iptables-nft -A FORWARD -i other -j ACCEPT",
			"-A FORWARD -o BRIDGE -j ACCEPT\n-A FORWARD -i BRIDGE -j ACCEPT\n-A FORWARD -i other -j ACCEPT", "-A FORWARD -i other -j ACCEPT"},
	} {
		t.Run(name, func(t *testing.T) {
			host, pod, outside := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
			nettest.NeedIPTables(t, host)
			nettest.JoinOutside(t, host, outside)
			command(t, host, c.firewall)
			run := t.TempDir()
			br := newBridge(t, run)
			mustSetupPod(t, host, br, "web", pod, nettest.PodWith(t, "web", "8080:80/TCP"))
			rec, _ := br.records.Load()
			rules := func() string {
				_, rules, _ := strings.Cut(command(t, host, "iptables-nft -S"), "-A ")
				return strings.TrimSpace("-A " + rules)
			}
			if got, want := rules(), strings.ReplaceAll(c.before, "BRIDGE", rec.Bridge); got != want {
				t.Errorf("rules\n%s\nwant\n%s", got, want)
			}
			asked(t, outside, pod)
			nettest.In(t, host, br.Repair)
			if got := strings.Count(rules(), rec.Bridge); got != 2 {
				t.Errorf("repaired, and %d rules: %s", got, rules())
			}
			nettest.Teardown(t, host, br, "web")
			if got := rules(); got != c.after {
				t.Errorf("rules afterwards\n%s", got)
			}
		})
	}
}

// TestClosedHostPort: the rules of docs/network.md keep other machines from a host port, which a firewall for incoming
// packets does not, and podrun has nothing to say of them.
func TestClosedHostPort(t *testing.T) {
	if err := exec.Command("nft", "--version").Run(); err != nil {
		t.Skipf("needs nft: %v", err)
	}
	text, err := os.ReadFile("../../../docs/network.md")
	if err != nil {
		t.Fatal(err)
	}
	guard := regexp.MustCompile("(?s)\n(table inet guard .*?)```").FindSubmatch(text)
	if guard == nil {
		t.Fatal("docs/network.md has no table guard")
	}
	host, pod, outside := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, outside)
	command(t, host, "nft 'table inet own { chain input { type filter hook input priority filter; policy drop; "+
		"ct state {established, related} accept; iif lo accept; }; }'")
	var said bytes.Buffer
	br := New(Options{Dirs: layout.Dirs{Run: t.TempDir()}, Log: slog.New(slog.NewTextHandler(&said, nil))})
	mustSetupPod(t, host, br, "web", pod, nettest.PodWith(t, "web", "8080:80/TCP", "3000:80/TCP", "9090:80/TCP"))
	nettest.ServeTCP(t, pod, ":80", "web")
	reached := func(ns netns.NsHandle, port string, want bool) {
		t.Helper()
		if got, err := nettest.Ask(ns, "tcp", "192.0.2.2:"+port); strings.HasPrefix(got, "web ") != want {
			t.Errorf("port %s: %q, %v, want an answer: %v", port, got, err, want)
		}
	}
	for _, port := range []string{"8080", "3000", "9090"} {
		reached(outside, port, true)
	}
	command(t, host, "nft -f - <<'EOF'\n"+strings.ReplaceAll(string(guard[1]), "eth0", "up0")+"EOF")
	nettest.In(t, host, br.Repair)
	reached(outside, "8080", false)
	reached(outside, "3000", false)
	reached(outside, "9090", true)
	reached(host, "8080", true)
	if said.Len() > 0 {
		t.Errorf("said %s", said.String())
	}
}

// TestOtherFirewall: an administrator's own firewall is not changed, and podrun logs what it needs.
func TestOtherFirewall(t *testing.T) {
	if err := exec.Command("nft", "--version").Run(); err != nil {
		t.Skipf("needs nft: %v", err)
	}
	const base = "\t\ttype filter hook forward priority filter"
	added := "chain forward of nftables' table inet mine drops what is forwarded; allow it, also in the file from which this firewall is loaded, by: " +
		"nft insert rule inet mine forward iifname BRIDGE accept; nft insert rule inet mine forward oifname BRIDGE accept"
	for name, c := range map[string]struct{ table, chain, rules, want string }{
		"policy":            {"mine", "forward", "; policy drop;\n", added},
		"last rule drops":   {"mine", "forward", "; policy accept;\n\t\tiifname \"x\" accept\n\t\tcounter drop\n", added},
		"last rule rejects": {"mine", "forward", "; policy accept;\n\t\tlog prefix \"no: \" reject with icmpx admin-prohibited\n", added},
		"firewalld": {"firewalld", "filter_FORWARD",
			" + 10; policy accept;\n\t\tct state { established, related } accept\n\t\treject with icmpx admin-prohibited\n",
			"firewall-cmd --zone=trusted --add-interface=BRIDGE; firewall-cmd --permanent --zone=trusted --add-interface=BRIDGE"},
		"drops some":    {"mine", "forward", "; policy accept;\n\t\tiifname \"x\" drop\n", ""},
		"drops earlier": {"mine", "forward", "; policy accept;\n\t\tiifname \"x\" drop\n\t\taccept\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			testOtherFirewall(t, fmt.Sprintf("table inet %s {\n\tchain %s {\n%s%s\t}\n}\n", c.table, c.chain, base, c.rules), c.want)
		})
	}
}

func testOtherFirewall(t *testing.T, table, want string) {
	host, pod := nettest.NewNS(t), nettest.NewNS(t)
	command(t, host, "nft -f - <<'EOF'\n"+table+"EOF")
	var said bytes.Buffer
	br := New(Options{Dirs: layout.Dirs{Run: t.TempDir()}, Log: slog.New(slog.NewTextHandler(&said, nil))})
	nettest.MustSetup(t, host, br, "a", pod)
	rec, _ := br.records.Load()
	if want = strings.ReplaceAll(want, "BRIDGE", rec.Bridge); !strings.Contains(said.String(), want) || want == "" && said.Len() > 0 {
		t.Errorf("said %s, want %q", said.String(), want)
	}
	nettest.Teardown(t, host, br, "a")
	if got := command(t, host, "nft -s list ruleset"); got != table {
		t.Errorf("afterwards:\n%s", got)
	}
}

// TestFirewallIsLoadedAnew: a firewall that has got the rules that the log names, as an administrator writes them, is not
// warned of again, nor by the next process, until it is loaded without them. What accepts less is not enough.
func TestFirewallIsLoadedAnew(t *testing.T) {
	const mine = "table inet mine {\n\tchain forward {\n\t\ttype filter hook forward priority 0; policy drop;\n\t}\n}\n"
	const dispatch = "table inet firewalld {\n\tchain filter_FWD_trusted {\n\t\taccept\n\t}\n\tchain filter_FORWARD_ZONES {\n\t}\n" +
		"\tchain filter_FORWARD {\n\t\ttype filter hook forward priority 10\n\t\tjump filter_FORWARD_ZONES\n\t\treject\n\t}\n}\n"
	in := func(text string) string { return "nft insert rule inet mine forward iifname " + text + "; " }
	out := func(text string) string { return "nft insert rule inet mine forward oifname " + text + "; " }
	for name, c := range map[string]struct {
		table, allow string
		enough       bool
	}{
		"as logged":  {mine, in("BRIDGE accept") + out("BRIDGE accept"), true},
		"counted":    {mine, in("BRIDGE counter accept") + out("BRIDGE counter accept comment mine"), true},
		"zone":       {dispatch, "nft add rule inet firewalld filter_FORWARD_ZONES iifname BRIDGE goto filter_FWD_trusted", true},
		"other zone": {dispatch, "nft add chain inet firewalld filter_FWD_public; nft add rule inet firewalld filter_FORWARD_ZONES iifname BRIDGE goto filter_FWD_public", false},
		"other link": {dispatch, "nft add rule inet firewalld filter_FORWARD_ZONES iifname other goto filter_FWD_trusted", false},
		"one way":    {mine, in("BRIDGE accept"), false},
		"dropped":    {mine, in("BRIDGE drop") + out("BRIDGE drop"), false},
		"some":       {mine, in("BRIDGE tcp dport 1 accept") + out("BRIDGE accept"), false},
		"others":     {mine, in("!= BRIDGE accept") + out("BRIDGE accept"), false},
	} {
		t.Run(name, func(t *testing.T) { testFirewallIsLoadedAnew(t, c.table, c.allow, c.enough) })
	}
}

func testFirewallIsLoadedAnew(t *testing.T, table, allow string, enough bool) {
	if err := exec.Command("nft", "--version").Run(); err != nil {
		t.Skipf("needs nft: %v", err)
	}
	host, dirs := nettest.NewNS(t), layout.Dirs{Run: t.TempDir()}
	load := "nft -f - <<'EOF'\nflush ruleset\n" + table + "EOF"
	command(t, host, load)
	var said bytes.Buffer
	podrun := func() *Bridge {
		return New(Options{Dirs: dirs, Log: slog.New(slog.NewTextHandler(&said, nil))})
	}
	br := podrun()
	check := func(when string, want int) {
		t.Helper()
		if n := strings.Count(said.String(), "a firewall may keep"); n != want {
			t.Fatalf("%s: warned %d times, want %d: %s", when, n, want, said.String())
		}
	}
	nettest.MustSetup(t, host, br, "a", nettest.NewNS(t))
	check("at first", 1)
	rec, _ := br.records.Load()
	command(t, host, strings.ReplaceAll(allow, "BRIDGE", rec.Bridge))
	nettest.In(t, host, br.Repair)
	check("repaired", 1)
	nettest.In(t, host, podrun().Repair)
	if !enough {
		check("the next process", 2)
		return
	}
	check("the next process", 1)
	command(t, host, load)
	nettest.MustSetup(t, host, br, "b", nettest.NewNS(t))
	check("loaded anew", 2)
	nettest.MustSetup(t, host, br, "c", nettest.NewNS(t))
	check("afterwards", 2)
}

// TestRepair: Repair restores the rules after all rules of the machine were flushed.
func TestRepair(t *testing.T) {
	host, pod, outside := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, outside)
	run := t.TempDir()
	br := newBridge(t, run)
	nettest.In(t, host, br.Repair) // nothing is there, and nothing is made
	nettest.Bare(t, host, run)
	mustSetupPod(t, host, br, "web", pod, nettest.PodWith(t, "web", "8080:80/TCP"))
	rec, _ := br.records.Load()
	nettest.In(t, host, func() error { return removeTables(rec.Bridge) })
	nettest.In(t, host, br.Repair)
	asked(t, outside, pod)
	nettest.Teardown(t, host, br, "web")
	nettest.Bare(t, host, run)
}
