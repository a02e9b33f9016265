package network

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

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

// TestHostIPWithoutRoute: when the cable is unplugged, no address of a bridge for containers is the machine's, be it
// podrun's or another's, nor an IPv6 one, which has no label. A bridge that leads out of the machine has its address.
func TestHostIPWithoutRoute(t *testing.T) {
	host, pod := nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, nettest.NewNS(t))
	br := bridge.New(bridge.Options{Dirs: layout.Dirs{Run: t.TempDir()}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	nettest.In(t, host, func() error { return addDefault6("up0") })
	nettest.MustSetup(t, host, br, "aaaa", pod)
	nettest.In(t, host, func() error {
		if err := errors.Join(removeLink("up0"), addBridge("docker0", "172.17.0.1/16", "fd00::1/64")); err != nil {
			return err
		}
		if addrs, err := netlink.AddrList(nil, netlink.FAMILY_V6); err != nil || !slices.ContainsFunc(addrs, isGlobal) {
			t.Errorf("no bridge has a global IPv6 address, so that this shows nothing: %v, %v", addrs, err)
		}
		if addr, err := HostIP(); !errors.Is(err, errNoAddress) {
			t.Errorf("a host with only bridges for containers has address %s, %v", addr, err)
		}
		port := &netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: "uplink"}}
		if err := netlink.LinkAdd(port); err != nil {
			return err
		}
		joined := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		watched := netdev.Watched{Protocol: unix.NETLINK_ROUTE, Groups: []int{unix.RTNLGRP_LINK}, Matters: mayMove}
		first := true
		go func() {
			joined <- nettest.Try(host, func() error {
				return netdev.Watch(ctx, watched, func() {
					if !first {
						cancel()
						return
					}
					first = false
					if err := join(port, "docker0"); err != nil {
						t.Error(err)
					}
				})
			})
		}()
		select {
		case <-joined:
		case <-time.After(time.Minute):
			t.Error("that the bridge has got a port is no reason to look at the addresses")
		}
		if addr, err := HostIP(); err != nil || addr != netip.MustParseAddr("172.17.0.1") {
			t.Errorf("a bridge that leads out of the machine has address %s, %v", addr, err)
		}
		return nil
	})
	nettest.Teardown(t, host, br, "aaaa")
}

// TestHostIPBesideDHCPOnTheBridge: a DHCP client on all links, such as dhcpcd, also makes a default route over podrun's
// bridge. The machine's address is that of its uplink nevertheless, and so is the MTU of pods.
func TestHostIPBesideDHCPOnTheBridge(t *testing.T) {
	host, pod := nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, nettest.NewNS(t))
	run := t.TempDir()
	br := bridge.New(bridge.Options{Dirs: layout.Dirs{Run: run}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	nettest.MustSetup(t, host, br, "aaaa", pod)
	nettest.In(t, host, func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		uplink, _, err := netdev.DefaultRoute(h, netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		// The best one is over the bridge.
		routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Dst: nil}, netlink.RT_FILTER_DST)
		if err != nil || len(routes) != 1 {
			t.Fatalf("default routes: %v, %v", routes, err)
		}
		worse := routes[0]
		worse.Priority = 2000
		if err := errors.Join(netlink.RouteDel(&routes[0]), netlink.RouteAdd(&worse)); err != nil {
			return err
		}
		for _, l := range links {
			if l.Type() != "bridge" {
				continue
			}
			over := &netlink.Route{LinkIndex: l.Attrs().Index, Priority: 1000, Scope: unix.RT_SCOPE_LINK,
				Dst: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}}
			if err := netlink.RouteAdd(over); err != nil {
				return err
			}
		}
		link, _, err := netdev.DefaultRoute(h, netlink.FAMILY_V4)
		if err != nil || link == nil || link.Attrs().Index != uplink.Attrs().Index {
			t.Errorf("default route over %v, want %v: %v", link, uplink, err)
		}
		if addr, err := HostIP(); err != nil || addr != netip.MustParseAddr("192.0.2.2") {
			t.Errorf("host's address %s, %v", addr, err)
		}
		return nil
	})
	nettest.Teardown(t, host, br, "aaaa")
}

func isGlobal(a netlink.Addr) bool { return a.IP.IsGlobalUnicast() }

// addDefault6 gives a link an IPv6 address and default route.
func addDefault6(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	addr, err := netlink.ParseAddr("2001:db8::2/64")
	if err != nil {
		return err
	}
	addr.Flags = unix.IFA_F_NODAD
	return errors.Join(netlink.AddrAdd(link, addr),
		netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP("2001:db8::1")}))
}

// addBridge makes a bridge with a container's port.
func addBridge(name string, addresses ...string) error {
	link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
	if err := netlink.LinkAdd(link); err != nil {
		return err
	}
	for _, text := range addresses {
		addr, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(link, addr); err != nil {
			return err
		}
	}
	port := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "port"}, PeerName: "container"}
	return errors.Join(netlink.LinkAdd(port), join(port, name), netlink.LinkSetUp(link), netlink.LinkSetUp(port))
}

func join(port netlink.Link, bridge string) error {
	link, err := netlink.LinkByName(bridge)
	if err != nil {
		return err
	}
	return netlink.LinkSetMaster(port, link)
}

func removeLink(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkDel(link)
}
