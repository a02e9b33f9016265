package bridge

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/network/nettest"
)

// advertise sends a router's advertisement of a prefix (/64) by the link up1 of ns.
func advertise(t *testing.T, ns netns.NsHandle, prefix string) {
	t.Helper()
	nettest.In(t, ns, func() error {
		link, err := netlink.LinkByName("up1")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255); err != nil {
			return err
		}
		lifetime := []byte{0, 0, 1, 0} // seconds
		router := append([]byte{routerAdvertisement, 0, 0, 0, 64, 0}, lifetime[2:]...)
		router = append(router, 0, 0, 0, 0, 0, 0, 0, 0)
		router = append(router, 3, 4, 64, 0xc0) // a prefix, on the link and for addresses
		router = append(append(append(router, lifetime...), lifetime...), 0, 0, 0, 0)
		router = append(router, netip.MustParseAddr(prefix+":").AsSlice()...)
		err = unix.Sendto(fd, router, 0, &unix.SockaddrInet6{
			Addr: [16]byte(net.IPv6linklocalallnodes), ZoneId: uint32(link.Attrs().Index),
		})
		if errors.Is(err, unix.EADDRNOTAVAIL) { // the link has been set up a moment ago, and has no address yet
			return nil
		}
		return err
	})
}

// TestRoutersOfAllUplinks: with the first pod, the machine keeps the routes from router advertisements on all links,
// not only on that of its default route, and accepts further ones. Links that are made later are as the kernel has them.
func TestRoutersOfAllUplinks(t *testing.T) {
	host, outside, router := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, outside)
	addIPv6(t, host, outside)
	command(t, host, "cd /proc/sys/net/ipv6/conf; echo 1 > default/accept_ra; ip link add up1 type veth peer name peer; "+
		"ip link add static type veth peer name way; echo 0 > static/accept_ra; "+
		"ip link add guests type bridge; echo 1 > guests/forwarding")
	nettest.In(t, host, func() error {
		peer, err := netlink.LinkByName("peer")
		if err != nil {
			return err
		}
		return netlink.LinkSetNsFd(peer, int(router))
	})
	command(t, router, "ip link set peer name up1; echo 0 > /proc/sys/net/ipv6/conf/up1/accept_dad; ip link set up1 up")
	command(t, host, "echo 0 > /proc/sys/net/ipv6/conf/up1/accept_dad; ip link set up1 up")
	const show = "ip -6 address show up1; ip -6 route show default dev up1"
	learn := func(prefix string) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); !strings.Contains(command(t, host, show), prefix); {
			if time.Now().After(end) {
				t.Fatalf("no address of %s:\n%s", prefix, command(t, host, show))
			}
			advertise(t, router, prefix)
			time.Sleep(20 * time.Millisecond)
		}
	}
	learn("2001:db8:2:")
	nettest.MustSetup(t, host, newBridge(t, t.TempDir()), "a", nettest.NewNS(t))
	if got := command(t, host, show); !strings.Contains(got, "default via") {
		t.Errorf("the route from before is gone:\n%s", got)
	}
	learn("2001:db8:3:")
	command(t, host, "ip link add later type veth peer name other")
	if got := command(t, host, "cd /proc/sys/net/ipv6/conf; cat default/accept_ra later/accept_ra static/accept_ra guests/accept_ra"); got != "1\n1\n0\n1\n" {
		t.Errorf("accept_ra of links made later, of one that accepted none, and of one that forwarded: %q", got)
	}
}
