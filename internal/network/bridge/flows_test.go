package bridge

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"podrun.io/podrun/internal/network/nettest"
	"podrun.io/podrun/internal/network/portmap"
	"podrun.io/podrun/internal/pod"
)

// flowTo begins a UDP flow: what it returns sends from the same port each time, and fails the test if another one than
// want answers.
func flowTo(t testing.TB, from netns.NsHandle, to string) func(want string) {
	t.Helper()
	var c net.Conn
	nettest.In(t, from, func() (err error) { c, err = net.Dial("udp4", to); return err })
	t.Cleanup(func() { c.Close() })
	return func(want string) {
		t.Helper()
		buf := make([]byte, 100)
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		for n := 1; n > 0; n, _ = c.Read(buf) { // a late answer to the last datagrams
		}
		for range 3 { // a datagram may be lost
			fmt.Fprint(c, "x")
			_ = c.SetReadDeadline(time.Now().Add(time.Second))
			if n, err := c.Read(buf); err == nil {
				if !strings.HasPrefix(string(buf[:n]), want+" ") {
					t.Errorf("%s, want %s", buf[:n], want)
				}
				return
			}
		}
		t.Errorf("no answer, want %s", want)
	}
}

// TestHostPortFlowsAfterPod: a client that goes on sending reaches who has the port after the pod, also a process of the
// machine or a pod in its network.
func TestHostPortFlowsAfterPod(t *testing.T) {
	host, outside, web := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, outside)
	br := newBridge(t, t.TempDir())
	nettest.MustSetup(t, host, br, "stays", nettest.NewNS(t))
	mustSetupPod(t, host, br, "web", web, nettest.PodWith(t, "web", "5353:53/UDP"))
	serveUDP(t, web, ":53", "pod")
	ask := flowTo(t, outside, "192.0.2.2:5353")
	ask("pod")
	nettest.Teardown(t, host, br, "web")
	mustSetupPod(t, host, br, "web2", netns.None(), nettest.PodWith(t, "web", "5353:5353/UDP"))
	serveUDP(t, host, ":5353", "machine")
	ask("machine")
}

// TestHostPortFlowsOfFormerRevision: a revision in the machine's network has the ports of a former one whose sandbox is
// still there, and no rule leads to that one, also for a port that only the former one has.
func TestHostPortFlowsOfFormerRevision(t *testing.T) {
	host, outside, web := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, outside)
	br := newBridge(t, t.TempDir())
	mustSetupPod(t, host, br, "web", web, nettest.PodWith(t, "web", "5353:53/UDP", "8080:80/TCP"))
	serveUDP(t, web, ":53", "pod")
	nettest.ServeTCP(t, web, ":80", "pod")
	ask := flowTo(t, outside, "192.0.2.2:5353")
	ask("pod")
	mustSetupPod(t, host, br, "web2", netns.None(), nettest.PodWith(t, "web", "5353:5353/UDP"))
	serveUDP(t, host, ":5353", "machine")
	ask("machine")
	if got, err := nettest.Ask(outside, "tcp", "192.0.2.2:8080"); err == nil {
		t.Errorf("a port that the new revision does not have: %q", got)
	}
}

// flushRules loads a firewall as Debian's /etc/nftables.conf does. Because of its rule, the kernel goes on tracking.
func flushRules(t testing.TB, host netns.NsHandle) {
	t.Helper()
	command(t, host, "nft 'flush ruleset; table inet filter { chain input { "+
		"type filter hook input priority filter; ct state established accept; }; }'")
}

// TestHostPortFlowsAreRepaired: clients that began to send while the rules were missing reach the pod when they are
// restored, by serve or with another pod's ports.
func TestHostPortFlowsAreRepaired(t *testing.T) {
	host, outside, web := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, outside)
	br := newBridge(t, t.TempDir())
	mustSetupPod(t, host, br, "web", web, nettest.PodWith(t, "web", "5353:53/UDP"))
	serveUDP(t, web, ":53", "pod")
	for name, repair := range map[string]func(){
		"serve": func() { nettest.In(t, host, br.Repair) },
		"pod": func() {
			mustSetupPod(t, host, br, "b", nettest.NewNS(t), nettest.PodWith(t, "b", "8081:80/TCP"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			flushRules(t, host)
			serveUDP(t, host, ":5353", "machine") // answers, so that the flow is there for sure
			ask := flowTo(t, outside, "192.0.2.2:5353")
			ask("machine")
			repair()
			ask("pod")
		})
	}
}

// TestHostPortFlowsOfOtherPods: who ends or starts with ports of its own does not look for flows to those of other pods,
// of which the machine may track very many. A flow that began while a rule was missing shows it.
func TestHostPortFlowsOfOtherPods(t *testing.T) {
	host, outside, web := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, outside)
	br := newBridge(t, t.TempDir())
	mustSetupPod(t, host, br, "web", web, nettest.PodWith(t, "web", "5353:53/UDP"))
	mustSetupPod(t, host, br, "other", nettest.NewNS(t), nettest.PodWith(t, "other", "8080:80/TCP"))
	serveUDP(t, web, ":53", "pod")
	serveUDP(t, host, ":5353", "machine")
	rec, _ := br.records.Load()
	command(t, host, "nft flush map ip "+portmap.Table(rec.Bridge)+" ports")
	ask := flowTo(t, outside, "192.0.2.2:5353")
	ask("machine")
	mustSetupPod(t, host, br, "other2", nettest.NewNS(t), nettest.PodWith(t, "other", "8080:80/TCP"))
	ask("machine")
	nettest.Teardown(t, host, br, "other2")
	ask("machine")
	flowTo(t, outside, "192.0.2.2:5353")("pod")
	nettest.In(t, host, br.Repair)
	ask("pod")
}

// TestHostPortFlowsOfOthers: a pod's host port does not end flows to that port of other machines, or of another address
// of this one.
func TestHostPortFlowsOfOthers(t *testing.T) {
	host, outside, client := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, outside)
	command(t, host, "ip addr add 192.0.2.3/24 dev up0")
	br := newBridge(t, t.TempDir())
	nettest.MustSetup(t, host, br, "client", client)
	ask := func(server, client netns.NsHandle, to string) (answer func() error) {
		t.Helper()
		var l net.PacketConn
		nettest.In(t, server, func() (err error) { l, err = net.ListenPacket("udp4", to); return err })
		t.Cleanup(func() { l.Close() })
		var c net.Conn
		nettest.In(t, client, func() (err error) { c, err = net.Dial("udp4", to); return err })
		t.Cleanup(func() { c.Close() })
		fmt.Fprint(c, "query")
		buf := make([]byte, 100)
		_, from, err := l.ReadFrom(buf)
		if err != nil {
			t.Fatal(err)
		}
		return func() error {
			_, errWrite := l.WriteTo([]byte("answer"), from)
			_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
			_, errRead := c.Read(buf)
			return errors.Join(errWrite, errRead)
		}
	}
	machine, address := ask(outside, client, "192.0.2.1:53"), ask(host, outside, "192.0.2.3:53")
	mustSetupPod(t, host, br, "dns", nettest.NewNS(t), nettest.PodWith(t, "dns", "192.0.2.2:53:53/UDP"))
	mustSetupPod(t, host, br, "all", nettest.NewNS(t), nettest.PodWith(t, "all", "54:53/UDP"))
	nettest.In(t, host, br.Repair)
	if err := machine(); err != nil {
		t.Errorf("another machine's answer: %v", err)
	}
	if err := address(); err != nil {
		t.Errorf("another address's answer: %v", err)
	}
}

// sctpInit is the packet that begins an SCTP association.
func sctpInit(from, to uint16) []byte {
	packet := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, from), to)
	packet = append(packet, make([]byte, 8)...)                                          // tag, checksum
	packet = append(packet, 1, 0, 0, 20, 0, 0, 0, 7, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1) // the chunk
	sum := crc32.Checksum(packet, crc32.MakeTable(crc32.Castagnoli))
	binary.LittleEndian.PutUint32(packet[8:], sum)
	return packet
}

// TestHostPortFlowsSCTP: an SCTP client that uses its port again reaches who has the host port after a pod, or after the
// rules were missing. An association stays with its pod when the port is given to another one. Packets are written by
// hand, because not each kernel has SCTP; its connection tracking is part of the other one.
func TestHostPortFlowsSCTP(t *testing.T) {
	host, outside := nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, outside)
	br := newBridge(t, t.TempDir())
	heard := make(chan string, 100)
	listen := func(ns netns.NsHandle, name string) {
		var l net.PacketConn
		nettest.In(t, ns, func() (err error) { l, err = net.ListenPacket("ip4:sctp", ""); return err })
		t.Cleanup(func() { l.Close() })
		go func() {
			for buf := make([]byte, 100); ; heard <- name {
				if _, _, err := l.ReadFrom(buf); err != nil {
					return
				}
			}
		}()
	}
	start := func(id, name string, surge bool) {
		t.Helper()
		ns, p := nettest.NewNS(t), nettest.PodWith(t, name, "3868:68/SCTP")
		p.Annotations = map[string]string{pod.AnnotationWorkload: "Deployment/web"}
		if surge {
			p.Annotations[pod.AnnotationSurge] = "Deployment/web"
		}
		mustSetupPod(t, host, br, id, ns, p)
		listen(ns, id)
	}
	var client net.Conn
	nettest.In(t, outside, func() (err error) { client, err = net.Dial("ip4:sctp", "192.0.2.2"); return err })
	defer client.Close()
	send := func(from uint16, want string) {
		t.Helper()
		if _, err := client.Write(sctpInit(from, 3868)); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-heard:
			if got != want {
				t.Errorf("from %d: %s hears it, want %s", from, got, want)
			}
		case <-time.After(5 * time.Second):
			t.Errorf("from %d: nobody hears it, want %s", from, want)
		}
	}
	listen(host, "machine")
	start("old", "web-0", false)
	send(1000, "old")
	start("surge", "web-1", true)
	send(1000, "old")
	nettest.In(t, host, func() error { return br.Yield(context.Background(), "old") })
	send(1000, "old")
	send(2000, "surge")
	nettest.Teardown(t, host, br, "old")
	send(1000, "surge")
	flushRules(t, host)
	send(3000, "machine")
	nettest.In(t, host, br.Repair)
	send(3000, "surge")
	send(2000, "surge")
	nettest.Teardown(t, host, br, "surge")
	send(2000, "machine")
	start("new", "web-0", false)
	send(2000, "new")
}

// TestPodsFlowsAreRepaired: a flow that a pod began while no rules masqueraded it is masqueraded when they are restored,
// unless it was answered without.
func TestPodsFlowsAreRepaired(t *testing.T) {
	host, outside, pod := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
	for _, ns := range []netns.NsHandle{host, outside} {
		command(t, ns, "sysctl -qw net.ipv6.conf.default.accept_dad=0") // else IPv6 waits for two seconds
	}
	nettest.JoinOutside(t, host, outside)
	addIPv6(t, host, outside)
	br := newBridge(t, t.TempDir())
	addr := nettest.MustSetup(t, host, br, "a", pod)
	rec, _ := br.records.Load()
	flushRules(t, host)
	addr6 := counterpart(addr, rec.Subnet6, rec.Subnet).String()
	check := map[string]func(from string){}
	begin := func(at, from string, answer bool) {
		t.Helper()
		var server net.PacketConn
		var client net.Conn
		nettest.In(t, outside, func() (err error) { server, err = net.ListenPacket("udp", at); return err })
		nettest.In(t, pod, func() (err error) { client, err = net.Dial("udp", at); return err })
		t.Cleanup(func() { server.Close(); client.Close() })
		buf := make([]byte, 1)
		check[at] = func(from string) {
			t.Helper()
			fmt.Fprint(client, "x")
			_ = server.SetReadDeadline(time.Now().Add(5 * time.Second))
			_, seen, err := server.ReadFrom(buf)
			if err != nil || seen.(*net.UDPAddr).IP.String() != from {
				t.Errorf("%s: from %v, %v; want %s", at, seen, err, from)
			}
			if !answer || err != nil {
				return
			}
			_, _ = server.WriteTo([]byte("x"), seen)
			_ = client.SetReadDeadline(time.Now().Add(5 * time.Second))
			if _, err := client.Read(buf); err != nil {
				t.Errorf("%s: %v", at, err)
			}
		}
		check[at](from)
	}
	begin("192.0.2.1:53", addr.String(), false)
	begin("[2001:db8::1]:53", addr6, false)
	command(t, outside, "ip route add "+rec.Subnet.String()+" via 192.0.2.2")
	begin("192.0.2.1:54", addr.String(), true)
	nettest.In(t, host, br.Repair)
	check["192.0.2.1:53"]("192.0.2.2")
	check["[2001:db8::1]:53"]("2001:db8::2")
	check["192.0.2.1:54"](addr.String())
}
