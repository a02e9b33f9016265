package bridge

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/network/netdev"
	"podrun.io/podrun/internal/network/nettest"
	"podrun.io/podrun/internal/test"
)

// packetTo is a UDP packet to a port, with a text.
func packetTo(from, to netip.Addr, port uint16, text string) []byte {
	return append(udp4To(from, to, port), bytes.Repeat([]byte(text), markBytes)...)
}

// TestLoopbackPortFromOutside: a neighbour that sends packets for 127.0.0.1 on the wire does not
// reach a port that is published there.
func TestLoopbackPortFromOutside(t *testing.T) {
	host, web, outside := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, outside) // this machine is 192.0.2.2
	br := newBridge(t, t.TempDir())
	mustSetupPod(t, host, br, "web", web, nettest.PodWith(t, "web", "127.0.0.1:82:80/UDP", "192.0.2.2:83:80/UDP"))
	var heard net.PacketConn
	nettest.In(t, web, func() (err error) { heard, err = net.ListenPacket("udp4", ":80"); return err })
	defer heard.Close()
	var socket int
	var machine net.HardwareAddr
	for ns, do := range map[netns.NsHandle]func(netlink.Link) error{
		host:    func(l netlink.Link) error { machine = l.Attrs().HardwareAddr; return nil },
		outside: func(l netlink.Link) (err error) { socket, err = packetSocket(l.Attrs().Index); return err },
	} {
		nettest.In(t, ns, func() error {
			link, err := netlink.LinkByName("up0")
			if err != nil {
				return err
			}
			return do(link)
		})
	}
	defer unix.Close(socket)
	peer := netip.MustParseAddr("192.0.2.1")
	for _, packet := range [][]byte{
		packetTo(peer, netip.MustParseAddr("127.0.0.1"), 82, "f"),
		packetTo(peer, netip.MustParseAddr("192.0.2.2"), 83, "h"), // what is sent later comes later
	} {
		frame := ether(net.HardwareAddr{2, 0, 0, 0, 0, 9}, unix.ETH_P_IP, packet)
		copy(frame, machine)
		if _, err := unix.Write(socket, frame); err != nil {
			t.Fatal(err)
		}
	}
	got, buf := "", make([]byte, 2048)
	for !strings.Contains(got, "h") {
		if err := heard.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, _, err := heard.ReadFrom(buf)
		if err != nil {
			t.Fatalf("the honest packet does not arrive: %v", err)
		}
		got += string(buf[:min(n, 1)])
	}
	if got != "h" {
		t.Errorf("the pod heard %q", got)
	}
}

// TestReservedFrames: frames to the addresses reserved for bridges do not carry a pod's forged
// packets to the machine.
func TestReservedFrames(t *testing.T) {
	host, outside := nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, outside)
	addIPv6(t, host, outside)
	br := newBridge(t, t.TempDir())
	a, b := newStation(t, host, br, "a"), newStation(t, host, br, "b")
	rec, _ := br.records.Load()
	gateway := gatewayOf(rec.Subnet)
	var heard net.PacketConn
	nettest.In(t, host, func() (err error) { heard, err = net.ListenPacket("udp4", ":99"); return err })
	defer heard.Close()
	send := func(to net.HardwareAddr, from netip.Addr, text string) {
		t.Helper()
		frame := ether(a.mac, unix.ETH_P_IP, packetTo(from, gateway, 99, text))
		copy(frame, to)
		if _, err := unix.Write(a.receives, frame); err != nil {
			t.Fatal(err)
		}
	}
	all := func() string {
		t.Helper()
		for last := range 16 {
			reserved := net.HardwareAddr{0x01, 0x80, 0xc2, 0, 0, byte(last)}
			send(reserved, b.ip, string(rune(0x41+last)))
			send(reserved, netip.MustParseAddr("8.8.8.8"), string(rune(0x41+last)))
		}
		send(everybody, a.ip, "h") // what is sent later comes later
		got, buf := "", make([]byte, 2048)
		for !strings.Contains(got, "h") {
			if err := heard.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
				t.Fatal(err)
			}
			n, _, err := heard.ReadFrom(buf)
			if err != nil {
				t.Fatalf("the honest packet does not arrive: %v", err)
			}
			got += string(buf[:min(n, 1)])
		}
		return got
	}
	if got := all(); got != "h" {
		t.Errorf("heard %q", got)
	}
	nettest.In(t, host, func() error { return removeTables(rec.Bridge) })
	if got := all(); got == "h" {
		t.Error("without the fence they do not arrive either, so that this shows nothing")
	}
}

// TestAddressIsNotAskedFor: no other pod can prevent a pod from using its link-local address by
// claiming to have it.
func TestAddressIsNotAskedFor(t *testing.T) {
	host, outside := nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, outside)
	addIPv6(t, host, outside)
	br := newBridge(t, t.TempDir())
	a := newStation(t, host, br, "a")
	nettest.In(t, a.ns, func() error {
		value, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + netdev.PodLink + "/accept_dad")
		if err == nil && strings.TrimSpace(string(value)) != "0" {
			t.Errorf("accept_dad is %s", value)
		}
		return err
	})
}

// TestBridgedPackets: where the kernel shows nftables what bridges forward (br_netfilter), a packet from a pod to a group
// of pods, or to all, has the pod's address.
func TestBridgedPackets(t *testing.T) {
	host, from, to, outside := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
	if err := nettest.Try(host, exec.Command("sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=1", "net.bridge.bridge-nf-call-ip6tables=1").Run); err != nil {
		t.Skipf("needs br_netfilter: %v", err)
	}
	nettest.JoinOutside(t, host, outside)
	addIPv6(t, host, outside)
	br := newBridge(t, t.TempDir())
	addr := nettest.MustSetup(t, host, br, "from", from)
	nettest.MustSetup(t, host, br, "to", to)
	rec, _ := br.records.Load()
	for at, want := range map[string]netip.Addr{
		"239.1.2.3": addr, "255.255.255.255": addr, "ff05::123": counterpart(addr, rec.Subnet6, rec.Subnet),
	} {
		group := netip.AddrPortFrom(netip.MustParseAddr(at), 7000)
		var l *net.UDPConn
		nettest.In(t, to, func() (err error) {
			if l, err = net.ListenUDP("udp", &net.UDPAddr{Port: 7000}); !group.Addr().IsMulticast() {
				return err
			}
			l.Close()
			eth0, err := net.InterfaceByName("eth0")
			if err == nil {
				l, err = net.ListenMulticastUDP("udp", eth0, net.UDPAddrFromAddrPort(group))
			}
			return err
		})
		var seen netip.AddrPort
		test.Eventually(t, at, func() bool { // the bridge drops what comes before it knows that a port's link is up
			nettest.In(t, from, func() error { return shout(group.String(), "all") })
			_ = l.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			_, sender, err := l.ReadFromUDPAddrPort(make([]byte, 100))
			seen = sender
			return err == nil
		})
		if seen.Addr().Unmap() != want {
			t.Errorf("to %s: from %s, want %s", at, seen, want)
		}
		l.Close()
	}
}
