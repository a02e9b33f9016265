package portmap

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/network/nettest"
	"podrun.io/podrun/internal/pod"
)

// TestAddressesAreAskedOnce: for all flows to an address the kernel is asked once whether that is the machine's.
func TestAddressesAreAskedOnce(t *testing.T) {
	host := nettest.NewNS(t)
	m := machine{}
	nettest.In(t, host, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		address, err := netlink.ParseAddr("192.0.2.2/32")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(lo, address); err != nil {
			return err
		}
		for addr, want := range map[string]bool{"192.0.2.2": true, "192.0.2.3": false, "127.0.0.1": true, "::1": false} {
			if got := m.isForwarded(netip.MustParseAddr(addr)); got != want {
				t.Errorf("%s: %v", addr, got)
			}
		}
		if err := netlink.AddrDel(lo, address); err != nil {
			return err
		}
		if !m.isForwarded(netip.MustParseAddr("192.0.2.2")) {
			t.Error("asked again")
		}
		return nil
	})
}

// TestFlowsCannotBeForgotten: where the kernel does not let podrun end flows, as without nf_conntrack_netlink, pods have
// their host ports all the same, and a warning says it once.
func TestFlowsCannotBeForgotten(t *testing.T) {
	host, ports, log := newMachine(t)
	ports.forget = func(_, _ []forwarding) error { return unix.EINVAL }
	for i, id := range []string{"a", "b"} {
		port := pod.HostPort{Protocol: v1.ProtocolUDP, Port: uint16(5300 + i), ContainerPort: 53}
		nettest.In(t, host, func() error { return ports.Reserve(id, recordWith(id, byte(2+i), port)) })
	}
	nettest.In(t, host, ports.Repair)
	nettest.In(t, host, func() error { return ports.Release("a") })
	if ports.Has("a") || !ports.Has("b") {
		t.Error("not the ports of b alone are reserved")
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Errorf("warned %d times: %s", n, log)
	}
}
