package bridge

import (
	"testing"

	"podrun.io/podrun/internal/network/nettest"
)

// TestListedRulesLoad: a file that an administrator writes with nft list ruleset is one that nft loads, and the same
// rules again: the kernel loads all of a file or nothing.
func TestListedRulesLoad(t *testing.T) {
	host, outside := nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, outside)
	addIPv6(t, host, outside)
	br := newBridge(t, t.TempDir())
	command(t, host, "nft add table ip filter; "+
		"nft add chain ip filter FORWARD '{ type filter hook forward priority 0; policy drop; }'")
	mustSetupPod(t, host, br, "web", nettest.NewNS(t), nettest.PodWith(t, "web",
		"8080:80/TCP", "8053:53/UDP", "192.0.2.2:81:80/TCP", "[2001:db8::2]:81:80/TCP"))
	nettest.MustSetup(t, host, br, "other", nettest.NewNS(t))
	before := command(t, host, "nft -s list ruleset")
	command(t, host, "rules=$(nft list ruleset); echo \"flush ruleset\n$rules\" | nft -f -")
	if after := command(t, host, "nft -s list ruleset"); after != before {
		t.Errorf("loaded anew:\n%swant\n%s", after, before)
	}
}
