package bridge

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"podrun.io/podrun/internal/network/nettest"
	"podrun.io/podrun/internal/sys/pace"
	"podrun.io/podrun/internal/test"
)

// TestChangedNetwork: what other programs change of the bridge and of forwarding returns, by itself and with the next pod,
// and pods that run have their network as before.
func TestChangedNetwork(t *testing.T) {
	for name, change := range map[string]string{
		"forwarding": "sysctl -qw net.ipv4.ip_forward=0",
		"addresses":  "ip addr flush dev BRIDGE",
		"down":       "ip link set BRIDGE down",
		"bridge":     "ip link del BRIDGE",
	} {
		for _, watched := range []bool{true, false} {
			t.Run(name+map[bool]string{true: " watched", false: " by a pod"}[watched], func(t *testing.T) {
				f := newFlushed(t)
				rec, err := f.br.records.Load()
				test.Must(t, err)
				f.works(t)
				if watched {
					defer f.watching(t)()
				}
				command(t, f.host, strings.ReplaceAll(change, "BRIDGE", rec.Bridge))
				if watched {
					test.Eventually(t, change, func() bool { return strings.Contains(f.log.String(), "are restored") })
				} else {
					nettest.MustSetup(t, f.host, f.br, "new", nettest.NewNS(t))
				}
				f.works(t)
			})
		}
	}
}

// TestSubnetOfRunningPodsIsKept: a bridge that returns after a route to its subnet has come, as of a VPN, has the subnet
// of the pods that run.
func TestSubnetOfRunningPodsIsKept(t *testing.T) {
	f := newFlushed(t)
	rec, err := f.br.records.Load()
	test.Must(t, err)
	route := netip.PrefixFrom(rec.Subnet.Addr(), rec.Subnet.Bits()-2).Masked()
	command(t, f.host, "ip route add "+route.String()+" via 192.0.2.1; ip link del "+rec.Bridge)
	nettest.In(t, f.host, f.br.Repair)
	now, err := f.br.records.Load()
	if test.Must(t, err); now.Subnet != rec.Subnet {
		t.Errorf("subnet %s, want %s", now.Subnet, rec.Subnet)
	}
	f.works(t)
	if n := strings.Count(f.log.String(), "route="+route.String()); n != 1 {
		t.Errorf("warned %d times: %s", n, f.log)
	}
}

// TestBridgeIsRemovedAgainAndAgain: who removes the bridge each time that it is there is left alone for a while.
func TestBridgeIsRemovedAgainAndAgain(t *testing.T) {
	f := newFlushed(t)
	f.br.repairs = pace.Pace{AtOnce: 2, Every: 24 * time.Hour}
	rec, err := f.br.records.Load()
	test.Must(t, err)
	defer f.watching(t)()
	for i := range 3 {
		command(t, f.host, "ip link del "+rec.Bridge)
		test.Eventually(t, "it is restored, or not any more", func() bool {
			return strings.Count(f.log.String(), "are restored")+strings.Count(f.log.String(), "again and again") == i+1
		})
	}
	if n := strings.Count(f.log.String(), "are restored"); n != 2 {
		t.Errorf("restored %d times: %s", n, f.log)
	}
}

// TestNobodyNeedsForwarding: without pods, forwarding that is turned off stays so.
func TestNobodyNeedsForwarding(t *testing.T) {
	f := newFlushed(t)
	f.br.keep = true
	for _, id := range []string{"web", "other"} {
		nettest.Teardown(t, f.host, f.br, id)
	}
	command(t, f.host, "sysctl -qw net.ipv4.ip_forward=0")
	nettest.In(t, f.host, func() error {
		if !(keeper{f.br}).isComplete() {
			t.Error("Watch would turn it on")
		}
		return nil
	})
}

// TestMachineAsksItsBridge: what the machine sends to the address of its bridge comes from that address.
func TestMachineAsksItsBridge(t *testing.T) {
	f := newFlushed(t)
	rec, err := f.br.records.Load()
	test.Must(t, err)
	gateway := gatewayOf(rec.Subnet).String()
	nettest.ServeTCP(t, f.host, gateway+":91", "machine")
	if got, err := nettest.Ask(f.host, "tcp", gateway+":91"); got != "machine "+gateway {
		t.Errorf("got %q, %v", got, err)
	}
}
