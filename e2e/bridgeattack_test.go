package e2e

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAttacker sends frames in a container, or tells what datagrams come, and does nothing elsewhere: this test's own
// program, which is a static one, is what TestPeerOnTheBridge runs there.
func TestAttacker(t *testing.T) {
	frames, port := os.Getenv("ATTACKER_FRAMES"), os.Getenv("ATTACKER_HEARS")
	if port != "" {
		l, err := net.ListenPacket("udp4", ":"+port)
		must(t, err)
		buf := make([]byte, 100)
		for {
			size, _, err := l.ReadFrom(buf)
			must(t, err)
			fmt.Printf("%s\n", buf[:size])
		}
	}
	if frames == "" {
		t.Skip("run by TestPeerOnTheBridge in a container")
	}
	link, err := net.InterfaceByName("eth0")
	must(t, err)
	all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, int(all))
	must(t, err)
	must(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index}))
	for text := range strings.FieldsSeq(frames) {
		frame, err := hex.DecodeString(text)
		must(t, err)
		_, err = unix.Write(fd, frame)
		must(t, err)
	}
}

func frame(to, from net.HardwareAddr, kind uint16, payload []byte) string {
	return hex.EncodeToString(append(binary.BigEndian.AppendUint16(append(bytes.Clone(to), from...), kind), payload...))
}

// udpPacket is an IPv4 packet with a datagram.
func udpPacket(from, to netip.AddrPort, text string) []byte {
	p := make([]byte, 28, 28+len(text))
	p[0], p[8], p[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(p[2:], uint16(28+len(text)))
	copy(p[12:], from.Addr().AsSlice())
	copy(p[16:], to.Addr().AsSlice())
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(p[10:], ^uint16(sum+sum>>16))
	binary.BigEndian.PutUint16(p[20:], from.Port())
	binary.BigEndian.PutUint16(p[22:], to.Port())
	binary.BigEndian.PutUint16(p[24:], uint16(8+len(text)))
	return append(p, text...)
}

// arpAnswer says that an address is at a hardware address.
func arpAnswer(ether net.HardwareAddr, ip netip.Addr, to net.HardwareAddr, toIP netip.Addr) []byte {
	p := append([]byte{0, 1, 8, 0, 6, 4, 0, 2}, ether...)
	p = append(append(append(p, ip.AsSlice()...), to...), toIP.AsSlice()...)
	return p
}

// TestPeerOnTheBridge: a container with Kubernetes' default capabilities, which may craft any frame, speaks for no other pod
// and not for the machine, reaches nothing on the machine's loopback, and sees no socket of podrun's or containerd's.
func TestPeerOnTheBridge(t *testing.T) {
	n := newNode(t)
	self, err := os.Executable()
	must(t, err)
	armed := func(name, line string) string {
		return inContainer(manifest(name, "Always", line, "volumes: [{name: a, hostPath: {path: "+self+", type: File}}]"),
			"volumeMounts: [{name: a, mountPath: /attacker, readOnly: true}]")
	}
	const run = "/attacker -test.run=^TestAttacker$"
	n.write("pods.yaml", armed("victim", "ATTACKER_HEARS=9 exec "+run)+"---\n"+manifest("other", "Always", forever)+"---\n"+armed("attacker", forever))
	n.serve()
	ip, mac := map[string]netip.Addr{}, map[string]net.HardwareAddr{}
	for _, name := range []string{"victim", "other", "attacker"} {
		n.ready(name + "-n")
		ip[name] = netip.MustParseAddr(n.pod(name + "-n").Status.PodIP)
		mac[name], err = net.ParseMAC(strings.TrimSpace(n.ok("exec", name, "--", "cat", "/sys/class/net/eth0/address")))
		must(t, err)
	}
	// Who has spoken with the machine knows its hardware address.
	route := n.ok("exec", "attacker", "--", "sh", "-c", "ip route | grep default")
	gateway := netip.MustParseAddr(strings.Fields(route)[2])
	arp := func(name string) string {
		return n.ok("exec", name, "--", "sh", "-c", fmt.Sprintf("ping -c1 -W5 %s >/dev/null; grep '^%[1]s ' /proc/net/arp", gateway))
	}
	before := strings.Fields(arp("attacker"))[3]
	mac["gateway"], err = net.ParseMAC(before)
	must(t, err)
	if got := strings.Fields(arp("victim"))[3]; got != before {
		t.Fatalf("the machine is at %s and at %s", before, got)
	}
	loopback, err := net.ListenPacket("udp4", "127.0.0.1:0")
	must(t, err)
	defer loopback.Close()
	port := loopback.LocalAddr().(*net.UDPAddr).AddrPort().Port()

	at := func(name string, port uint16) netip.AddrPort { return netip.AddrPortFrom(ip[name], port) }
	local := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
	frames := []string{
		frame(mac["victim"], mac["attacker"], unix.ETH_P_IP, udpPacket(at("other", 9), at("victim", 9), "FORGED")),
		frame(mac["victim"], mac["other"], unix.ETH_P_IP, udpPacket(at("attacker", 9), at("victim", 9), "FORGED")),
		frame(mac["victim"], mac["attacker"], unix.ETH_P_ARP, arpAnswer(mac["attacker"], gateway, mac["victim"], ip["victim"])),
		frame(mac["gateway"], mac["attacker"], unix.ETH_P_IP, udpPacket(at("attacker", 9), local, "FORGED")),
		frame(mac["gateway"], mac["attacker"], unix.ETH_P_IP, udpPacket(local, netip.AddrPortFrom(gateway, port), "FORGED")),
		// The bridge does not take the victim's address for the attacker's, so that the next frame arrives.
		frame(net.HardwareAddr{0x01, 0x80, 0xc2, 0, 0, 0x0e}, mac["victim"], 0x88cc, make([]byte, 46)),
		frame(mac["victim"], mac["attacker"], unix.ETH_P_IP, udpPacket(at("attacker", 9), at("victim", 9), "honest")),
	}
	n.ok("exec", "attacker", "--", "env", "ATTACKER_FRAMES="+strings.Join(frames, " "), "/attacker", "-test.run=^TestAttacker$")
	n.await("the honest datagram", func() error {
		got := n.ok("logs", "victim")
		if strings.Contains(got, "FORGED") {
			t.Fatalf("the victim was told %q", got)
		}
		if !strings.Contains(got, "honest") {
			return fmt.Errorf("it was told %q", got)
		}
		return nil
	})
	if now := n.ok("exec", "victim", "--", "grep", "^"+gateway.String()+" ", "/proc/net/arp"); !strings.Contains(now, before) {
		t.Errorf("the victim takes %q for the machine, which is at %s", now, before)
	}
	own, err := net.Dial("udp4", loopback.LocalAddr().String())
	must(t, err)
	defer own.Close()
	_, err = own.Write([]byte("its own"))
	must(t, err)
	buf := make([]byte, 100)
	if size, _, err := loopback.ReadFrom(buf); err != nil || string(buf[:size]) != "its own" {
		t.Errorf("the machine's loopback hears %q, %v", buf[:size], err)
	}
	if got := n.ok("exec", "attacker", "--", "cat", "/proc/net/unix"); strings.Contains(got, "containerd") || strings.Contains(got, "podrun") {
		t.Errorf("sockets in reach:\n%s", got)
	}
}
