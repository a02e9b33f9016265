package bridge

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/network/nettest"
)

const lldpFrame = 0x88cc

// reservedAddr is one of the addresses reserved for bridges.
func reservedAddr(last int) net.HardwareAddr {
	return net.HardwareAddr{0x01, 0x80, 0xc2, 0, 0, byte(last)}
}

// frameTo is ether for one receiver.
func frameTo(to, from net.HardwareAddr, kind uint16, payload []byte) []byte {
	frame := ether(from, kind, payload)
	copy(frame, to)
	return frame
}

func transmit(t *testing.T, from *station, frames ...[]byte) {
	t.Helper()
	for _, f := range frames {
		if _, err := unix.Write(from.receives, f); err != nil {
			t.Fatal(err)
		}
	}
}

// learned returns the addresses that the bridge knows of its ports, with the port of each, but not those of the
// machine's own links.
func learned(t *testing.T, host netns.NsHandle, bridge string) map[string]int {
	t.Helper()
	ports := map[string]int{}
	nettest.In(t, host, func() error {
		link, err := netlink.LinkByName(bridge)
		if err != nil {
			return err
		}
		all, err := netlink.NeighList(0, unix.AF_BRIDGE)
		for _, n := range all {
			if n.MasterIndex == link.Attrs().Index && n.State != netlink.NUD_PERMANENT {
				ports[n.HardwareAddr.String()] = n.LinkIndex
			}
		}
		return err
	})
	return ports
}

// unpin makes a network like that of a podrun that left it to the kernel to learn addresses.
func unpin(t *testing.T, host netns.NsHandle, br *Bridge) {
	t.Helper()
	rec, _ := br.records.Load()
	nettest.In(t, host, func() error {
		held, err := br.addresses.owners()
		if err != nil {
			return err
		}
		for addr, id := range held {
			link, err := netlink.LinkByName(br.identity.portName(id))
			if err != nil {
				return err
			}
			entry := &netlink.Neigh{
				LinkIndex: link.Attrs().Index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_MASTER,
				HardwareAddr: macOf(podPrefix, addr),
			}
			if err := errors.Join(netlink.NeighDel(entry), netlink.LinkSetLearning(link, true), netlink.LinkSetFlood(link, true)); err != nil {
				return err
			}
		}
		attrs, none := netlink.NewLinkAttrs(), uint16(0)
		attrs.Name = rec.Bridge
		return netlink.LinkModify(&netlink.Bridge{LinkAttrs: attrs, GroupFwdMask: &none})
	})
}

// TestFramesMoveNoAddress: no pod gets another's frames by sending with its hardware address, or makes the bridge
// remember addresses, whatever the frames' receiver and protocol; and that holds without the fence too. After an
// upgrade, it also holds for pods that run.
func TestFramesMoveNoAddress(t *testing.T) {
	host, outside := nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, outside)
	addIPv6(t, host, outside)
	run := t.TempDir()
	br := newBridge(t, run)
	a, b, c := newStation(t, host, br, "a"), newStation(t, host, br, "b"), newStation(t, host, br, "c")
	rec, _ := br.records.Load()
	const many = 500
	random := func(n int) net.HardwareAddr {
		return binary.BigEndian.AppendUint32(net.HardwareAddr{2, 7}, uint32(n))
	}
	attack := func() {
		t.Helper()
		for last := range 16 {
			for _, victim := range []net.HardwareAddr{b.mac, br.identity.hardwareAddr()} {
				transmit(t, a, frameTo(reservedAddr(last), victim, lldpFrame, make([]byte, 46)))
			}
		}
		transmit(t, a, frameTo(c.mac, b.mac, lldpFrame, make([]byte, 46)), ether(b.mac, unix.ETH_P_IP, udp4(a.ip)))
		for n := range many {
			transmit(t, a, frameTo(reservedAddr(0x0e), random(n), lldpFrame, make([]byte, 46)),
				frameTo(reservedAddr(3), random(many+n), lldpFrame, make([]byte, 46)))
		}
	}
	toB := func() []byte { return frameTo(b.mac, c.mac, unix.ETH_P_IP, udp4To(c.ip, b.ip, 9)) }
	check := func(when string) {
		t.Helper()
		attack()
		if arrives(t, c, a, toB()) {
			t.Errorf("%s: what is for another pod arrives", when)
		}
		if !arrives(t, c, b, toB()) {
			t.Errorf("%s: what is for a pod does not arrive", when)
		}
		if arrives(t, c, a, frameTo(random(1), c.mac, unix.ETH_P_IP, udp4(c.ip))) {
			t.Errorf("%s: what is for nobody arrives", when)
		}
		known := learned(t, host, rec.Bridge)
		if len(known) != 3 {
			t.Errorf("%s: the bridge knows %d addresses", when, len(known))
		}
		nettest.In(t, host, func() error {
			for id, s := range map[string]*station{"a": a, "b": b, "c": c} {
				link, err := netlink.LinkByName(br.identity.portName(id))
				if err != nil {
					return err
				}
				if port := known[s.mac.String()]; port != link.Attrs().Index {
					t.Errorf("%s: %s is at port %d and not %d", when, s.mac, port, link.Attrs().Index)
				}
			}
			return nil
		})
	}
	check("at first")
	nettest.In(t, host, func() error { return removeTables(rec.Bridge) })
	check("without the fence")
	unpin(t, host, br)
	moved := func() bool {
		attack()
		return !arrives(t, c, b, toB()) && arrives(t, c, a, toB()) && len(learned(t, host, rec.Bridge)) >= many
	}
	for i := 1; !moved(); i++ { // what the kernel of b sends by itself moves the address back
		if i == 20 {
			t.Fatal("if the kernel learns, nothing happens either, so that this shows nothing")
		}
	}
	nettest.In(t, host, br.Repair)
	nettest.In(t, host, func() error { // what was learned would be forgotten after five minutes
		all, err := netlink.NeighList(0, unix.AF_BRIDGE)
		for _, n := range all {
			if n.MasterIndex != 0 && n.State == netlink.NUD_REACHABLE {
				n.Family, n.Flags = unix.AF_BRIDGE, netlink.NTF_MASTER
				err = errors.Join(err, netlink.NeighDel(&n))
			}
		}
		return err
	})
	check("repaired")
	nettest.In(t, host, func() error {
		link, err := netlink.LinkByName(rec.Bridge)
		if err == nil && *link.(*netlink.Bridge).GroupFwdMask != lldp {
			t.Errorf("the mask is %#x", *link.(*netlink.Bridge).GroupFwdMask)
		}
		return err
	})
	// What all must get, they get.
	question := append(arp(1, c.mac, c.ip)[:18], append(make([]byte, 6), b.ip.AsSlice()...)...)
	if !arrives(t, c, b, ether(c.mac, unix.ETH_P_ARP, question)) {
		t.Error("ARP to all does not arrive")
	}
	solicit := ether(c.mac, unix.ETH_P_IPV6, icmp6(c.ip6, unix.IPPROTO_ICMPV6, nil, about(135, b.ip6)))
	copy(solicit, net.HardwareAddr{0x33, 0x33, 0xff, b.ip6.As16()[13], b.ip6.As16()[14], b.ip6.As16()[15]})
	if !arrives(t, c, b, solicit) {
		t.Error("IPv6 to a group does not arrive")
	}
	nettest.Talk(t, c.ns, b.ns, b.ip.String())
	serveTCP6(t, b.ns, "[::]:80", "six")
	if got, err := nettest.Ask(c.ns, "tcp", netip.AddrPortFrom(b.ip6, 80).String()); got != "six "+c.ip6.String() {
		t.Errorf("by IPv6: %q, %v", got, err)
	}
	nettest.In(t, host, func() error { // a port of an older podrun, which it leaves as it is
		link, err := netlink.LinkByName(br.identity.portName("a"))
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetLearning(link, true), removeTables(rec.Bridge))
	})
	attack()
	if arrives(t, c, a, toB()) || !arrives(t, c, b, toB()) {
		t.Error("a port that learns takes another's address")
	}
	nettest.Teardown(t, host, br, "a")
	if known := learned(t, host, rec.Bridge); len(known) != 2 {
		t.Errorf("with a pod less, the bridge knows %v", known)
	}
	nettest.Teardown(t, host, br, "b")
	nettest.Teardown(t, host, br, "c")
	nettest.Bare(t, host, run)
}

// TestReservedFramesOfAnyKind: neither ARP nor IPv6 with a forged sender reaches the machine by the addresses that are
// reserved for bridges, on a network without IPv6.
func TestReservedFramesOfAnyKind(t *testing.T) {
	host, outside := nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, outside)
	br := newBridge(t, t.TempDir())
	a := &station{ns: nettest.NewNS(t)}
	a.ip = nettest.MustSetup(t, host, br, "a", a.ns)
	a.mac = macOf(podPrefix, a.ip)
	nettest.In(t, a.ns, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		a.receives, err = packetSocket(link.Attrs().Index)
		return err
	})
	defer unix.Close(a.receives)
	rec, _ := br.records.Load()
	if rec.Subnet6.IsValid() {
		t.Fatalf("the network has IPv6: %s", rec.Subnet6)
	}
	gateway := gatewayOf(rec.Subnet)
	const experiment = 253 // a protocol that nobody has
	var six net.PacketConn
	var heard net.PacketConn
	nettest.In(t, host, func() (err error) {
		if six, err = net.ListenPacket(fmt.Sprint("ip6:", experiment), "::"); err != nil {
			return err
		}
		heard, err = net.ListenPacket("udp4", ":99")
		return err
	})
	defer six.Close()
	defer heard.Close()
	other := net.HardwareAddr{2, 0, 0, 0, 0, 9}
	// told returns which last bytes of the reserved addresses lead to the machine, by ARP and by IPv6.
	told := func(round byte) (byARP, by6 []int) {
		t.Helper()
		sender := func(last int) netip.Addr { return netip.AddrFrom4([4]byte{198, 51, round, byte(last)}) }
		for last := range 16 {
			question := append(append(arp(1, other, sender(last))[:18], make([]byte, 6)...), gateway.AsSlice()...)
			forged := icmp6(netip.MustParseAddr("2001:db8:bad::1"), experiment, nil, bytes.Repeat([]byte{byte(last)}, 8+markBytes))
			binary.BigEndian.PutUint16(forged[4:], 8+markBytes)
			transmit(t, a, frameTo(reservedAddr(last), other, unix.ETH_P_ARP, question),
				frameTo(reservedAddr(last), other, unix.ETH_P_IPV6, forged))
		}
		// What is sent later comes later. On a machine under load one packet may be lost.
		buf := make([]byte, 2048)
		for tries := 1; ; tries++ {
			transmit(t, a, ether(a.mac, unix.ETH_P_IP, packetTo(a.ip, gateway, 99, string(round))))
			if err := heard.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			n, _, err := heard.ReadFrom(buf)
			if err == nil && n > 0 && buf[0] == round {
				break
			}
			if tries == 20 {
				t.Fatalf("the honest packet does not arrive: %v", err)
			}
		}
		for {
			if err := six.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			n, _, err := six.ReadFrom(buf)
			if err != nil {
				break
			}
			by6 = append(by6, int(buf[:n][0]))
		}
		nettest.In(t, host, func() error {
			all, err := netlink.NeighList(0, netlink.FAMILY_V4)
			for _, n := range all {
				ip, _ := netip.AddrFromSlice(n.IP.To4())
				for last := range 16 {
					if ip == sender(last) {
						byARP = append(byARP, last)
					}
				}
			}
			return err
		})
		return byARP, by6
	}
	if byARP, by6 := told(100); len(byARP)+len(by6) > 0 {
		t.Errorf("the machine is told by ARP to %v, by IPv6 to %v", byARP, by6)
	}
	nettest.In(t, host, func() error { return removeTables(rec.Bridge) })
	if byARP, by6 := told(101); len(byARP) < 14 || len(by6) < 14 {
		t.Errorf("without the fence, only by ARP to %v, by IPv6 to %v, so that this shows nothing", byARP, by6)
	}
}
