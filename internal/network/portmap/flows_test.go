package portmap

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"podrun.io/podrun/internal/network/nettest"
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
