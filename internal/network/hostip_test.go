package network

import (
	"log/slog"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/network/bridge"
	"podrun.io/podrun/internal/network/netdev"
	"podrun.io/podrun/internal/network/nettest"
)

func TestPodsReachTheWorldAsTheHost(t *testing.T) {
	host, pod, outside := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, outside)
	run := t.TempDir()
	br := bridge.New(bridge.Options{Dirs: layout.Dirs{Run: run}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	nettest.MustSetup(t, host, br, "aaaa", pod)
	if seen := nettest.Talk(t, pod, outside, "192.0.2.1"); seen != netip.MustParseAddr("192.0.2.2") {
		t.Errorf("seen as %s", seen)
	}
	nettest.In(t, pod, func() error {
		link, err := netlink.LinkByName(netdev.PodLink)
		if err == nil && link.Attrs().MTU != 1400 {
			t.Errorf("mtu %d, want the uplink's 1400", link.Attrs().MTU)
		}
		return err
	})
	nettest.In(t, host, func() error {
		addr, err := HostIP()
		if addr != netip.MustParseAddr("192.0.2.2") {
			t.Errorf("host's address %s", addr)
		}
		return err
	})
	nettest.Teardown(t, host, br, "aaaa")
	nettest.Bare(t, host, run)
}

func TestHostIPWithoutRoute(t *testing.T) {
	host, pod := nettest.NewNS(t), nettest.NewNS(t)
	run := t.TempDir()
	br := bridge.New(bridge.Options{Dirs: layout.Dirs{Run: run}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	nettest.MustSetup(t, host, br, "aaaa", pod)
	nettest.In(t, host, func() error {
		if addr, err := HostIP(); err == nil {
			t.Errorf("a host with only podrun's bridge has address %s", addr)
		}
		return nil
	})
	nettest.Teardown(t, host, br, "aaaa")
}
