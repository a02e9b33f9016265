package bridge

import (
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/network/nettest"
	"podrun.io/podrun/internal/test"
)

// allowing are the commands that a warning names.
var allowing = regexp.MustCompile(`ip6?tables-legacy -I FORWARD -[io] [\w-]+ -j ACCEPT`)

// TestLegacyFirewall: rules of iptables-legacy are none of nftables'. If they keep pods from other machines, the log
// says what lets them pass, until that is there, and also if they come after podrun; of others it says nothing.
func TestLegacyFirewall(t *testing.T) {
	for name, c := range map[string]struct {
		rules string
		later bool // than the first pod
		named int  // commands
	}{
		"policies":   {"iptables-legacy -P FORWARD DROP; ip6tables-legacy -P FORWARD DROP", false, 4},
		"last rules": {"iptables-legacy -A FORWARD -i other -j ACCEPT; iptables-legacy -A FORWARD -j REJECT; ip6tables-legacy -A FORWARD -j DROP", false, 4},
		"later":      {"iptables-legacy -P FORWARD DROP", true, 2},
		"accepts":    {"iptables-legacy -S; ip6tables-legacy -S", false, 0},
		"drops others": {"iptables-legacy -A FORWARD -i other -j DROP; ip6tables-legacy -A FORWARD -p tcp -j REJECT; " +
			"iptables-legacy -P INPUT DROP; iptables-legacy -N X; iptables-legacy -A X -j DROP", false, 0},
	} {
		t.Run(name, func(t *testing.T) { testLegacyFirewall(t, c.rules, c.later, c.named) })
	}
}

func testLegacyFirewall(t *testing.T, rules string, later bool, named int) {
	host, outside, pod := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
	for _, program := range []string{"iptables-legacy", "ip6tables-legacy"} {
		if out := command(t, nettest.NewNS(t), program+" -S || true"); !strings.Contains(out, "-P FORWARD ACCEPT") {
			t.Skipf("needs %s: %s", program, out)
		}
	}
	nettest.JoinOutside(t, host, outside)
	dirs, log := layout.Dirs{Run: t.TempDir()}, &test.Buffer{}
	podrun := func() *Bridge { return New(Options{Dirs: dirs, Log: slog.New(slog.NewTextHandler(log, nil))}) }
	br := podrun()
	if later {
		nettest.MustSetup(t, host, br, "first", nettest.NewNS(t))
		nettest.In(t, host, func() error {
			if !(keeper{br}).isComplete() { // as Watch asks; nftables' rules do not change then
				t.Error("the rules are not complete")
			}
			return nil
		})
	}
	command(t, host, rules)
	mustSetupPod(t, host, br, "web", pod, nettest.PodWith(t, "web", "8080:80/TCP"))
	watches := func() {
		t.Helper()
		nettest.In(t, host, func() error {
			if !(keeper{br}).isComplete() { // as Watch asks
				t.Error("the rules are not complete")
			}
			return nil
		})
	}
	watches()
	commands := allowing.FindAllString(log.String(), -1)
	if len(commands) != named || named == 0 && log.String() != "" {
		t.Fatalf("want %d commands: %s", named, log)
	}
	command(t, host, strings.Join(commands, "; "))
	asked(t, outside, pod)
	before := log.String()
	br = podrun()
	nettest.In(t, host, br.Repair)
	watches()
	if log.String() != before {
		t.Errorf("said although it is allowed: %s", strings.TrimPrefix(log.String(), before))
	}
	for _, id := range []string{"web", "first"} {
		nettest.Teardown(t, host, br, id)
	}
}
