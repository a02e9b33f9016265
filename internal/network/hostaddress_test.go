package network

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/network/nettest"
)

// TestHostAddress: the machine's address comes after podrun, is replaced, and goes.
func TestHostAddress(t *testing.T) {
	host := nettest.NewNS(t)
	ctx, cancel := context.WithCancel(t.Context())
	changes, ended := make(chan struct{}, 16), make(chan error)
	var a *HostAddress
	nettest.In(t, host, func() error {
		a = ReadHostAddress(slog.New(slog.NewTextHandler(t.Output(), nil)))
		return nil
	})
	go func() {
		ended <- nettest.Try(host, func() error { return a.Run(ctx, func() { changes <- struct{}{} }) })
	}()
	check := func(what, ip, probe string) {
		t.Helper()
		for end := time.After(time.Minute); a.IP() != ip || a.ProbeIP() != probe; {
			select {
			case <-changes:
			case <-end:
				t.Fatalf("%s: %q, for probes %q; want %q and %q", what, a.IP(), a.ProbeIP(), ip, probe)
			}
		}
	}
	change := func(f func(netlink.Link, *netlink.Addr) error, address string) {
		t.Helper()
		nettest.In(t, host, func() error {
			link, err := netlink.LinkByName("up")
			if err != nil {
				return err
			}
			addr, err := netlink.ParseAddr(address)
			if err != nil {
				return err
			}
			return f(link, addr)
		})
	}
	check("before the network", "", "127.0.0.1")
	nettest.In(t, host, func() error {
		up := netlink.NewLinkAttrs()
		up.Name = "up"
		link := &netlink.Veth{LinkAttrs: up, PeerName: "other"}
		if err := netlink.LinkAdd(link); err != nil {
			return err
		}
		other, err := netlink.LinkByName("other")
		return errors.Join(err, netlink.LinkSetUp(link), netlink.LinkSetUp(other))
	})
	change(netlink.AddrAdd, "192.0.2.2/24")
	check("the network is there", "192.0.2.2", "192.0.2.2")
	change(netlink.AddrAdd, "198.51.100.7/24")
	change(netlink.AddrDel, "192.0.2.2/24")
	check("another address", "198.51.100.7", "198.51.100.7")
	change(func(link netlink.Link, _ *netlink.Addr) error {
		return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.IPv4(198, 51, 100, 1)})
	}, "198.51.100.7/24")
	change(netlink.AddrAdd, "203.0.113.9/24")
	check("a second address that is not the default route's", "198.51.100.7", "198.51.100.7")
	change(netlink.AddrDel, "203.0.113.9/24")
	change(netlink.AddrDel, "198.51.100.7/24")
	check("no address any more", "198.51.100.7", "127.0.0.1")
	// Of a link that goes down the kernel says nothing but that.
	nettest.In(t, host, func() error {
		for _, at := range []struct{ address, gateway string }{{"192.0.2.2/24", "192.0.2.1"}, {"198.51.100.7/24", "198.51.100.1"}} {
			link, err := netlink.LinkByName(map[string]string{"192.0.2.2/24": "up", "198.51.100.7/24": "other"}[at.address])
			if err != nil {
				return err
			}
			addr, err := netlink.ParseAddr(at.address)
			if err != nil {
				return err
			}
			metric := 100 * link.Attrs().Index
			if link.Attrs().Name == "up" {
				metric = 1
			}
			err = errors.Join(netlink.AddrAdd(link, addr), netlink.RouteAdd(&netlink.Route{
				LinkIndex: link.Attrs().Index, Gw: net.ParseIP(at.gateway), Priority: metric,
			}))
			if err != nil {
				return err
			}
		}
		return nil
	})
	check("two uplinks", "192.0.2.2", "192.0.2.2")
	nettest.In(t, host, func() error {
		link, err := netlink.LinkByName("up")
		if err != nil {
			return err
		}
		return netlink.LinkSetDown(link)
	})
	check("one of them is down", "198.51.100.7", "198.51.100.7")
	// Routes to elsewhere are not looked at.
	if mayMove(append(binary.NativeEndian.AppendUint16(make([]byte, 4), unix.RTM_NEWROUTE), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, unix.AF_INET, 24,
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)) {
		t.Error("a route to elsewhere matters")
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}
