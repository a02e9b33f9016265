package bridge

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/network/netdev"
	"podrun.io/podrun/internal/network/nettest"
)

// station is a pod on the bridge, as others see it.
type station struct {
	ns       netns.NsHandle
	mac      net.HardwareAddr
	ip, ip6  netip.Addr
	own      netip.Addr // of its link alone
	receives int        // a socket that gets all frames
}

func newStation(t *testing.T, host netns.NsHandle, br *Bridge, id string) *station {
	t.Helper()
	s := &station{ns: nettest.NewNS(t)}
	nettest.In(t, host, func() error {
		addrs, err := br.Setup(t.Context(), id, nettest.Path(s.ns), nettest.PodWith(t, id))
		if err == nil {
			s.ip, s.ip6 = addrs[0], addrs[1]
		}
		return err
	})
	nettest.In(t, s.ns, func() error {
		link, err := netlink.LinkByName(netdev.PodLink)
		if err != nil {
			return err
		}
		s.mac = link.Attrs().HardwareAddr
		s.own = linkLocal(s.mac)
		s.receives, err = packetSocket(link.Attrs().Index)
		return err
	})
	t.Cleanup(func() { unix.Close(s.receives) })
	return s
}

// packetSocket sends and receives whole frames.
func packetSocket(link int) (int, error) {
	all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all))
	if err != nil {
		return -1, err
	}
	// Room for a flood.
	return fd, errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link}))
}

var everybody = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

func ether(from net.HardwareAddr, kind uint16, payload []byte) []byte {
	frame := append(append(append([]byte{}, everybody...), from...), binary.BigEndian.AppendUint16(nil, kind)...)
	return append(frame, payload...)
}

func udp4(from netip.Addr) []byte {
	return udp4To(from, netip.AddrFrom4([4]byte{255, 255, 255, 255}), 9)
}

// udp4To is the headers of a packet that goes on with markBytes.
func udp4To(from, to netip.Addr, port uint16) []byte {
	header := make([]byte, 28)
	header[0], header[8], header[9] = 0x45, 64, unix.IPPROTO_UDP
	copy(header[12:], from.AsSlice())
	copy(header[16:], to.AsSlice())
	binary.BigEndian.PutUint16(header[22:], port)
	// The kernel looks at the lengths before it lets nftables see the rest.
	binary.BigEndian.PutUint16(header[2:], 28+markBytes)
	binary.BigEndian.PutUint16(header[24:], 8+markBytes)
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(header[10:], ^uint16(sum&0xffff+sum>>16))
	return header
}

func arp(op byte, ether net.HardwareAddr, ip netip.Addr) []byte {
	body := append([]byte{0, 1, 8, 0, 6, 4, 0, op}, ether...)
	return append(append(body, ip.AsSlice()...), make([]byte, 10)...)
}

// icmp6 is an ICMPv6 packet; before are further headers, of which the first's number is next.
func icmp6(from netip.Addr, next byte, before, message []byte) []byte {
	packet := make([]byte, 40)
	packet[0], packet[6], packet[7] = 0x60, next, 255
	binary.BigEndian.PutUint16(packet[4:], uint16(len(before)+len(message)+markBytes))
	to := netip.MustParseAddr("ff02::1")
	copy(packet[8:], from.AsSlice())
	copy(packet[24:], to.AsSlice())
	return slices.Concat(packet, before, message)
}

func about(kind byte, target netip.Addr) []byte {
	return append([]byte{kind, 0, 0, 0, 0x20, 0, 0, 0}, target.AsSlice()...)
}

// markBytes is how long a frame's mark is, at its end.
const markBytes = 24

// arrives sends a frame from one station and tells whether another gets it. An honest frame follows
// it, so that nothing need be waited for. The kernel may lose both, or let them change places, when
// the machine has much to do: they are sent until an honest one arrives.
func arrives(t *testing.T, from, to *station, frame []byte) bool {
	t.Helper()
	pause := unix.NsecToTimeval(int64(100 * time.Millisecond))
	if err := unix.SetsockoptTimeval(to.receives, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &pause); err != nil {
		t.Fatal(err)
	}
	// Marks of this call, which no frame of a former one has.
	mark := fmt.Appendf(nil, "%0*d", markBytes, time.Now().UnixNano())
	last := fmt.Appendf(nil, "%0*d", markBytes, time.Now().UnixNano()+1)
	honest := append(ether(from.mac, unix.ETH_P_IP, udp4(from.ip)), last...)
	frame = append(bytes.Clone(frame), mark...)
	got := false
	buf := make([]byte, 2048)
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		for _, f := range [][]byte{frame, frame, honest} {
			if _, err := unix.Write(from.receives, f); err != nil {
				t.Fatal(err)
			}
		}
		for {
			n, _, err := unix.Recvfrom(to.receives, buf, 0)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got = got || bytes.Contains(buf[:n], mark)
			if bytes.Contains(buf[:n], last) {
				return got
			}
		}
	}
	t.Fatal("no honest frame arrives")
	return false
}

// TestFence: whatever frames a pod crafts, it can send only from its own addresses.
func TestFence(t *testing.T) {
	host, outside := nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, outside)
	addIPv6(t, host, outside)
	run := t.TempDir()
	br := newBridge(t, run)
	a, b, watcher := newStation(t, host, br, "a"), newStation(t, host, br, "b"), newStation(t, host, br, "w")
	rec, _ := br.records.Load()
	gateway, gateway6 := gatewayOf(rec.Subnet), gatewayOf(rec.Subnet6)
	four, six, tagged := uint16(unix.ETH_P_IP), uint16(unix.ETH_P_IPV6), uint16(unix.ETH_P_8021Q)
	const icmp = unix.IPPROTO_ICMPV6
	hopByHop := []byte{icmp, 0, 1, 4, 0, 0, 0, 0}
	router := []byte{134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0}
	cases := []struct {
		name  string
		frame []byte
		want  bool
	}{
		{"from itself", ether(a.mac, four, udp4(a.ip)), true},
		{"ARP for itself", ether(a.mac, unix.ETH_P_ARP, arp(1, a.mac, a.ip)), true},
		{"IPv6 from itself", ether(a.mac, six, icmp6(a.ip6, icmp, nil, about(128, a.ip6))), true},
		{"IPv6 from its link's address", ether(a.mac, six, icmp6(a.own, icmp, nil, about(128, a.ip6))), true},
		{"an advertisement for itself", ether(a.mac, six, icmp6(a.ip6, icmp, nil, about(136, a.ip6))), true},
		{"a question whether its address is free", ether(a.mac, six, icmp6(netip.IPv6Unspecified(), icmp, nil, about(135, a.own))), true},

		{"another's hardware address", ether(b.mac, four, udp4(a.ip)), false},
		{"the machine's hardware address", ether(br.identity.hardwareAddr(), four, udp4(a.ip)), false},
		{"another's address", ether(a.mac, four, udp4(b.ip)), false},
		{"the machine's address", ether(a.mac, four, udp4(gateway)), false},
		{"an address of the world", ether(a.mac, four, udp4(netip.MustParseAddr("192.0.2.1"))), false},
		{"no address", ether(a.mac, four, udp4(netip.IPv4Unspecified())), false},
		{"another's address in a VLAN", ether(a.mac, tagged, append([]byte{0, 1, 8, 0}, udp4(b.ip)...)), false},
		{"another's address in two VLANs", ether(a.mac, tagged, append([]byte{0, 1, 0x81, 0, 0, 1, 8, 0}, udp4(b.ip)...)), false},
		{"ARP answer for the machine", ether(a.mac, unix.ETH_P_ARP, arp(2, a.mac, gateway)), false},
		{"ARP answer for another", ether(a.mac, unix.ETH_P_ARP, arp(2, a.mac, b.ip)), false},
		{"ARP that leads to another", ether(a.mac, unix.ETH_P_ARP, arp(2, b.mac, a.ip)), false},
		{"IPv6 from another", ether(a.mac, six, icmp6(b.ip6, icmp, nil, about(128, a.ip6))), false},
		{"IPv6 from nowhere", ether(a.mac, six, icmp6(netip.IPv6Unspecified(), icmp, nil, about(128, a.ip6))), false},
		{"an advertisement for another", ether(a.mac, six, icmp6(a.ip6, icmp, nil, about(136, b.ip6))), false},
		{"an advertisement for the machine", ether(a.mac, six, icmp6(a.own, icmp, nil, about(136, gateway6))), false},
		{"a router's advertisement", ether(a.mac, six, icmp6(a.own, icmp, nil, router)), false},
		{"one behind another header", ether(a.mac, six, icmp6(a.own, 0, hopByHop, router)), false},
		{"a redirect", ether(a.mac, six, icmp6(a.own, icmp, nil, about(137, b.ip6))), false},
		{"another protocol", ether(a.mac, 0x88cc, make([]byte, 40)), false},
	}
	check := func(when string) {
		t.Helper()
		for _, c := range cases {
			if got := arrives(t, a, watcher, c.frame); got != c.want {
				t.Errorf("%s, %s: arrives %t", when, c.name, got)
			}
		}
	}
	check("at first")
	nettest.In(t, host, br.Repair)
	check("repaired")
	nettest.In(t, host, func() error { return removeTables(rec.Bridge) })
	for _, c := range cases {
		if !arrives(t, a, watcher, c.frame) {
			t.Errorf("without the fence, %s: does not arrive, so that this shows nothing", c.name)
		}
	}
	newStation(t, host, br, "late")
	check("made anew with the next pod")
	for i := range staleFences { // what is gone is swept out, and who is there stays fenced in
		id := fmt.Sprint("short", i)
		newStation(t, host, br, id)
		nettest.Teardown(t, host, br, id)
	}
	if stale := br.fence.stale.Load(); stale != 0 {
		t.Errorf("%d ports that are gone are in the fence", stale)
	}
	check("after many others")
	// One of a podrun that gave pods any hardware address is left as it is, and works.
	nettest.In(t, host, func() error {
		link, err := netlink.LinkByName(br.identity.portName("a"))
		if err != nil {
			return err
		}
		return netlink.LinkSetHardwareAddr(link, b.mac)
	})
	nettest.In(t, a.ns, func() error {
		link, err := netlink.LinkByName(netdev.PodLink)
		if err != nil {
			return err
		}
		a.mac = net.HardwareAddr{2, 0, 0, 0, 0, 9}
		return netlink.LinkSetHardwareAddr(link, a.mac)
	})
	nettest.In(t, host, br.Repair)
	if !arrives(t, a, watcher, ether(a.mac, four, udp4(a.ip))) {
		t.Error("a pod of the former version is cut off")
	}
	if arrives(t, b, watcher, ether(b.mac, four, udp4(a.ip))) {
		t.Error("others are not fenced in beside it")
	}
	for _, id := range []string{"a", "b", "w", "late"} {
		nettest.Teardown(t, host, br, id)
	}
	nettest.Bare(t, host, run)
}

// TestPodIsNoRouter: neither the machine nor another pod accepts a pod as its router, even without
// the fence.
func TestPodIsNoRouter(t *testing.T) {
	host, outside := nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, outside)
	addIPv6(t, host, outside)
	br := newBridge(t, t.TempDir())
	a, b := newStation(t, host, br, "a"), newStation(t, host, br, "b")
	rec, _ := br.records.Load()
	nettest.In(t, host, func() error { return removeTables(rec.Bridge) })
	for ns, links := range map[netns.NsHandle][]string{host: {rec.Bridge, br.identity.portName("a"), br.identity.portName("b")}, a.ns: {netdev.PodLink}, b.ns: {netdev.PodLink}} {
		for _, link := range links {
			nettest.In(t, ns, func() error {
				value, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + link + "/accept_ra")
				if err == nil && strings.TrimSpace(string(value)) != "0" {
					t.Errorf("accept_ra of %s is %s", link, value)
				}
				return err
			})
		}
	}
}

// TestWhoReachesPods: from other links, only published ports and answers reach pods; or everything,
// if the pods' network is open.
func TestWhoReachesPods(t *testing.T) {
	for _, open := range []bool{false, true} {
		t.Run(fmt.Sprintf("open %t", open), func(t *testing.T) {
			host, web, outside := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
			nettest.JoinOutside(t, host, outside)
			addIPv6(t, host, outside)
			br := newBridge(t, t.TempDir())
			br.open = open
			var addrs []netip.Addr
			nettest.In(t, host, func() (err error) {
				addrs, err = br.Setup(t.Context(), "web", nettest.Path(web), nettest.PodWith(t, "web", "8080:80/TCP"))
				return err
			})
			nettest.In(t, outside, func() error { // a neighbour knows its way
				link, err := netlink.LinkByName("up0")
				if err != nil {
					return err
				}
				by := func(to netip.Addr, bits int, gateway string) error {
					return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(to, bits), Gw: net.ParseIP(gateway)})
				}
				return errors.Join(by(addrs[0], 32, "192.0.2.2"), by(addrs[1], 128, "2001:db8::2"))
			})
			nettest.ServeTCP(t, web, ":80", "web")
			serveTCP6(t, web, "[::]:80", "web6")
			nettest.ServeTCP(t, outside, ":90", "world")
			for _, c := range []struct {
				to       string
				from     netns.NsHandle
				answered bool
			}{
				{"192.0.2.2:8080", outside, true},
				{"[2001:db8::2]:8080", outside, true},
				{netip.AddrPortFrom(addrs[0], 80).String(), outside, open},
				{netip.AddrPortFrom(addrs[1], 80).String(), outside, open},
				{netip.AddrPortFrom(addrs[0], 80).String(), host, true},
				{netip.AddrPortFrom(addrs[1], 80).String(), host, true},
				{"192.0.2.1:90", web, true},
			} {
				got, err := nettest.Ask(c.from, "tcp", c.to)
				for tries := 0; c.answered && err != nil && tries < 5; tries++ { // IPv6 takes its time to begin
					got, err = nettest.Ask(c.from, "tcp", c.to)
				}
				if (err == nil) != c.answered {
					t.Errorf("%s: %q, %v", c.to, got, err)
				}
			}
		})
	}
}

// TestLoopbackIsGuarded: pods do not reach the machine's loopback, whatever host ports there are or
// were, and the bridge routes it only as long as a port needs that.
func TestLoopbackIsGuarded(t *testing.T) {
	host, outside, web, other := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, outside)
	addIPv6(t, host, outside)
	br := newBridge(t, t.TempDir())
	nettest.MustSetup(t, host, br, "other", other)
	rec, _ := br.records.Load()
	gateway := gatewayOf(rec.Subnet).String()
	var secret net.PacketConn
	nettest.In(t, host, func() (err error) { secret, err = net.ListenPacket("udp4", "127.0.0.1:99"); return err })
	defer secret.Close()
	nettest.In(t, other, func() error { return addRoute(t, "127.0.0.0/8", gateway) })
	check := func(when, routed string) {
		t.Helper()
		nettest.In(t, other, func() error { return shout("127.0.0.1:99", "the pod") })
		nettest.In(t, host, func() error {
			if err := shout("127.0.0.1:99", "the machine"); err != nil {
				return err
			}
			value, err := os.ReadFile("/proc/sys/net/ipv4/conf/" + rec.Bridge + "/route_localnet")
			if got := strings.TrimSpace(string(value)); got != routed {
				t.Errorf("%s: route_localnet is %q", when, got)
			}
			return err
		})
		buf := make([]byte, 100)
		if n, _, err := secret.ReadFrom(buf); err != nil || string(buf[:n]) != "the machine" {
			t.Errorf("%s: the machine's loopback hears %q, %v", when, buf[:n], err)
		}
	}
	check("before any port", "0")
	mustSetupPod(t, host, br, "web", web, nettest.PodWith(t, "web", "8080:80/TCP"))
	check("with a port", "1")
	nettest.Teardown(t, host, br, "web")
	check("after the last port", "0")
	mustSetupPod(t, host, br, "web", nettest.NewNS(t), nettest.PodWith(t, "web", "[2001:db8::2]:81:80/TCP"))
	check("with an IPv6 port", "0")
	mustSetupPod(t, host, br, "web2", nettest.NewNS(t), nettest.PodWith(t, "web2", "192.0.2.2:81:80/TCP"))
	check("with a port of another address", "0")
	// Whoever sets it by hand opens nothing.
	nettest.In(t, host, func() error {
		return os.WriteFile("/proc/sys/net/ipv4/conf/"+rec.Bridge+"/route_localnet", []byte("1"), 0)
	})
	check("set by hand", "1")
}
