package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/network/netdev"
	"podrun.io/podrun/internal/network/nettest"
	"podrun.io/podrun/internal/network/portmap"
	"podrun.io/podrun/internal/network/records"
	"podrun.io/podrun/internal/pod"
)

func serveUDP(t testing.TB, ns netns.NsHandle, at, word string) {
	t.Helper()
	var l net.PacketConn
	nettest.In(t, ns, func() (err error) { l, err = net.ListenPacket("udp4", at); return err })
	t.Cleanup(func() { l.Close() })
	go func() {
		buf := make([]byte, 100)
		for {
			_, from, err := l.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = l.WriteTo(fmt.Appendf(nil, "%s %s", word, from.(*net.UDPAddr).IP), from)
		}
	}()
}

// TestHostPorts: a host port leads to the pod from everywhere it can be reached, and to nothing
// else.
func TestHostPorts(t *testing.T) {
	host, web, other, outside := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, outside) // this machine is 192.0.2.2
	run := t.TempDir()
	br := newBridge(t, run)
	addr := mustSetupPod(t, host, br, "web", web, nettest.PodWith(t, "web", "8080:80/TCP", "5353:53/UDP", "192.0.2.2:81:80/TCP", "127.0.0.1:82:80/TCP"))
	addrOther := nettest.MustSetup(t, host, br, "other", other)
	rec, _ := br.records.Load()
	gateway := gatewayOf(rec.Subnet).String()
	nettest.ServeTCP(t, web, ":80", "web")
	serveUDP(t, web, ":53", "dns")
	none := "" // nobody answers
	for _, c := range []struct {
		name, network, to string
		from              netns.NsHandle
		want              string
	}{
		{"outside", "tcp", "192.0.2.2:8080", outside, "web 192.0.2.1"},
		{"outside, UDP", "udp", "192.0.2.2:5353", outside, "dns 192.0.2.1"},
		{"outside, not TCP", "tcp", "192.0.2.2:5353", outside, none},
		{"machine, its address", "tcp", "192.0.2.2:8080", host, "web 192.0.2.2"},
		{"machine, loopback", "tcp", "127.0.0.1:8080", host, "web " + gateway},
		{"machine, another loopback", "tcp", "127.9.9.9:8080", host, "web " + gateway},
		{"machine, loopback, UDP", "udp", "127.0.0.1:5353", host, "dns " + gateway},
		{"another pod", "tcp", "192.0.2.2:8080", other, "web " + gateway},
		{"another pod by the bridge", "tcp", gateway + ":8080", other, "web " + gateway},
		{"another pod, UDP", "udp", "192.0.2.2:5353", other, "dns " + gateway},
		{"another pod past it", "tcp", addr.String() + ":80", other, "web " + addrOther.String()},
		{"the pod itself", "tcp", "192.0.2.2:8080", web, "web " + gateway},
		{"the pod's own loopback", "tcp", "127.0.0.1:80", web, "web 127.0.0.1"},
		{"hostIP, from outside", "tcp", "192.0.2.2:81", outside, "web 192.0.2.1"},
		{"hostIP, another address", "tcp", "127.0.0.1:81", host, none},
		{"hostIP of the loopback", "tcp", "127.0.0.1:82", host, "web " + gateway},
		{"hostIP of the loopback, from outside", "tcp", "192.0.2.2:82", outside, none},
		{"another port", "tcp", "192.0.2.2:8081", outside, none},
	} {
		got, err := nettest.Ask(c.from, c.network, c.to)
		if got != c.want || (c.want == none) != (err != nil) {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
	}
	// The bridge routes the loopback now; pods must not reach it.
	var secret net.PacketConn
	nettest.In(t, host, func() (err error) { secret, err = net.ListenPacket("udp4", "127.0.0.1:99"); return err })
	defer secret.Close()
	nettest.In(t, web, func() error {
		return errors.Join(addRoute(t, "127.0.0.0/8", gateway), shout("127.0.0.1:99", "the pod"))
	})
	nettest.In(t, host, func() error { return shout("127.0.0.1:99", "the machine") })
	buf := make([]byte, 100)
	if n, _, err := secret.ReadFrom(buf); err != nil || string(buf[:n]) != "the machine" {
		t.Errorf("the machine's loopback hears %q, %v", buf[:n], err)
	}
	nettest.Teardown(t, host, br, "web")
	if got, err := nettest.Ask(outside, "tcp", "192.0.2.2:8080"); err == nil {
		t.Errorf("after the pod: %q", got)
	}
	noTable(t, host, portmap.Table(rec.Bridge))
	nettest.Teardown(t, host, br, "other")
	nettest.Bare(t, host, run)
}

func shout(to, what string) error {
	c, err := net.Dial("udp", to)
	if err != nil {
		return err
	}
	_, err = c.Write([]byte(what))
	return errors.Join(err, c.Close())
}

// addRoute sends packets for a network by way of another machine.
func addRoute(t testing.TB, to, by string) error {
	t.Helper()
	prefix := netip.MustParsePrefix(to)
	link, err := netlink.LinkByName(netdev.PodLink)
	if err != nil {
		return err
	}
	local, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_LOCAL}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return err
	}
	for _, r := range local { // else the pod's own loopback takes them
		if r.Dst != nil && prefix.Contains(netip.MustParseAddr(r.Dst.IP.String())) {
			if err := netlink.RouteDel(&r); err != nil {
				return err
			}
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+netdev.PodLink+"/route_localnet", []byte("1"), 0); err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(prefix.Addr(), prefix.Bits()), Gw: net.ParseIP(by)})
}

func noTable(t testing.TB, host netns.NsHandle, name string) {
	t.Helper()
	nettest.In(t, host, func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		tables, err := c.ListTables()
		for _, table := range tables {
			if table.Name == name {
				t.Errorf("table %s is left", name)
			}
		}
		return err
	})
}

func TestHostPortSCTP(t *testing.T) {
	host, web := nettest.NewNS(t), nettest.NewNS(t)
	run := t.TempDir()
	br := newBridge(t, run)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP)
	if err != nil {
		t.Skipf("this kernel has no SCTP: %v", err)
	}
	unix.Close(fd)
	mustSetupPod(t, host, br, "web", web, nettest.PodWith(t, "web", "3868:3868/SCTP"))
	var listener int
	nettest.In(t, web, func() (err error) {
		if listener, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP); err != nil {
			return err
		}
		return errors.Join(unix.Bind(listener, &unix.SockaddrInet4{Port: 3868}), unix.Listen(listener, 1))
	})
	defer unix.Close(listener)
	nettest.In(t, host, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Connect(fd, &unix.SockaddrInet4{Port: 3868, Addr: [4]byte{127, 0, 0, 1}})
	})
	nettest.Teardown(t, host, br, "web")
	nettest.Bare(t, host, run)
}

func TestHostPortTaken(t *testing.T) {
	host := nettest.NewNS(t)
	nobody := netns.None()
	run := t.TempDir()
	br := newBridge(t, run)
	mustSetupPod(t, host, br, "1", nettest.NewNS(t), nettest.PodWith(t, "one", "8080:80/TCP", "127.0.0.1:9090:80/TCP"))
	mustSetupPod(t, host, br, "2", nobody, nettest.PodWith(t, "two", "7070:7070/TCP"))
	var busy net.Listener
	nettest.In(t, host, func() (err error) { busy, err = net.Listen("tcp4", "127.0.0.1:6060"); return err })
	for _, c := range []struct{ port, by string }{
		{"8080:1/TCP", "pod default/one"},
		{"127.0.0.1:8080:1/TCP", "pod default/one"},
		{"9090:1/TCP", "pod default/one"},
		{"127.0.0.1:9090:1/TCP", "pod default/one"},
		{"7070:1/TCP", "pod default/two"},
		{"6060:1/TCP", "process of this machine"},
		{"127.0.0.1:6060:1/TCP", "process of this machine"},
		{"8080:1/UDP", ""},
		{"127.0.0.2:9090:1/TCP", ""},
		{"6060:1/UDP", ""},
		{"198.51.100.7:6060:1/TCP", ""}, // not this machine's, yet
	} {
		_, err := nettest.SetupPod(host, br, "x", nettest.NewNS(t), nettest.PodWith(t, "x", c.port))
		var taken *portmap.PortInUseError
		if errors.As(err, &taken) != (c.by != "") || c.by != "" && !strings.Contains(err.Error(), c.by) || c.by == "" && err != nil {
			t.Errorf("%s: %v", c.port, err)
		}
		nettest.Teardown(t, host, br, "x")
	}
	if _, err := nettest.SetupPod(host, br, "x", nettest.NewNS(t), nettest.PodWith(t, "x", "localhost:1:1/TCP")); err == nil || !strings.Contains(err.Error(), `"localhost" is not an IP address`) {
		t.Errorf("error %v", err)
	}
	nettest.Teardown(t, host, br, "x")
	// It heals: the process and the pods go.
	busy.Close()
	mustSetupPod(t, host, br, "x", nettest.NewNS(t), nettest.PodWith(t, "x", "6060:1/TCP"))
	nettest.Teardown(t, host, br, "1")
	nettest.Teardown(t, host, br, "2")
	mustSetupPod(t, host, br, "y", nettest.NewNS(t), nettest.PodWith(t, "y", "8080:1/TCP", "7070:1/TCP", "9090:1/TCP"))
	nettest.Teardown(t, host, br, "x")
	nettest.Teardown(t, host, br, "y")
	nettest.Bare(t, host, run)
}

// TestHostPortOfRevisions: a new revision takes the ports over, and the later removal of the old
// revision does not affect them. UDP flows are redirected too.
func TestHostPortOfRevisions(t *testing.T) {
	host, before, after := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
	run := t.TempDir()
	br := newBridge(t, run)
	p := nettest.PodWith(t, "web", "8080:80/TCP", "5353:53/UDP")
	mustSetupPod(t, host, br, "old", before, p)
	nettest.ServeTCP(t, before, ":80", "old")
	serveUDP(t, before, ":53", "old")
	nettest.ServeTCP(t, after, ":80", "new")
	serveUDP(t, after, ":53", "new")
	rec, _ := br.records.Load()
	seen := " " + gatewayOf(rec.Subnet).String()
	var flow net.Conn
	nettest.In(t, host, func() (err error) { flow, err = net.Dial("udp", "127.0.0.1:5353"); return err })
	defer flow.Close()
	say := func(want string) {
		t.Helper()
		buf := make([]byte, 100)
		_ = flow.SetDeadline(time.Now().Add(2 * time.Second))
		if _, err := flow.Write([]byte("?")); err != nil {
			t.Fatal(err)
		}
		if n, err := flow.Read(buf); err != nil || string(buf[:n]) != want+seen {
			t.Errorf("UDP: %q, %v", buf[:n], err)
		}
	}
	say("old")
	mustSetupPod(t, host, br, "new", after, p)
	say("new")
	nettest.Teardown(t, host, br, "old")
	if got, err := nettest.Ask(host, "tcp", "127.0.0.1:8080"); got != "new"+seen {
		t.Errorf("%q, %v", got, err)
	}
	say("new")
	nettest.Teardown(t, host, br, "new")
	nettest.Bare(t, host, run)
}

// TestHostPortsAreRepaired: removed rules are restored with the next change, and a record that a power
// cut truncated is ignored.
func TestHostPortsAreRepaired(t *testing.T) {
	host, a, b := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
	run := t.TempDir()
	br := newBridge(t, run)
	mustSetupPod(t, host, br, "a", a, nettest.PodWith(t, "a", "8080:80/TCP"))
	nettest.ServeTCP(t, a, ":80", "a")
	rec, _ := br.records.Load()
	nettest.In(t, host, func() error { return removeTables(rec.Bridge) })
	if _, err := nettest.Ask(host, "tcp", "127.0.0.1:8080"); err == nil {
		t.Fatal("the rules are still there")
	}
	if err := os.WriteFile(br.records.Path+"/"+records.PortDir+"/torn", []byte(`{"pod":"defa`), 0o600); err != nil {
		t.Fatal(err)
	}
	mustSetupPod(t, host, br, "b", b, nettest.PodWith(t, "b", "8081:80/TCP"))
	if got, err := nettest.Ask(host, "tcp", "127.0.0.1:8080"); err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, id := range []string{"a", "b", "torn"} {
		nettest.Teardown(t, host, br, id)
	}
	nettest.Bare(t, host, run)
}

// TestHostPortTwice: a pod whose host port leads to two of its ports does not start, and keeps no other pod from that. One
// that names a port twice for the same target starts.
func TestHostPortTwice(t *testing.T) {
	host, web := nettest.NewNS(t), nettest.NewNS(t)
	br := newBridge(t, t.TempDir())
	for _, at := range []string{"", "0.0.0.0:", "[::ffff:0.0.0.0]:"} {
		_, err := nettest.SetupPod(host, br, "twice", nettest.NewNS(t), nettest.PodWith(t, "twice", "8080:80/TCP", at+"8080:81/TCP"))
		if err == nil || !strings.Contains(err.Error(), "leads to two ports of the pod") {
			t.Errorf("%q: error %v", at, err)
		}
		mustSetupPod(t, host, br, "other", nettest.NewNS(t), nettest.PodWith(t, "other", "8082:80/TCP"))
		nettest.Teardown(t, host, br, "other")
	}
	nettest.ServeTCP(t, web, ":80", "web")
	nettest.ServeTCP(t, web, ":81", "loopback")
	mustSetupPod(t, host, br, "web", web, nettest.PodWith(t, "web",
		"8080:80/TCP", "0.0.0.0:8080:80/TCP", "8080:80/TCP", "127.0.0.1:8080:81/TCP", "8080:81/UDP"))
	for to, want := range map[string]string{"127.0.0.1:8080": "loopback ", "127.0.0.2:8080": "web "} {
		if got, err := nettest.Ask(host, "tcp", to); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, %v", to, got, err)
		}
	}
}

// TestHostPortWithoutBridge: host ports of pods in the host's network, without any bridge, and
// after a reboot.
func TestHostPortWithoutBridge(t *testing.T) {
	host := nettest.NewNS(t)
	run := t.TempDir()
	br := newBridge(t, run)
	mustSetupPod(t, host, br, "1", netns.None(), nettest.PodWith(t, "one", "80:80/TCP"))
	var taken *portmap.PortInUseError
	if _, err := nettest.SetupPod(host, br, "2", netns.None(), nettest.PodWith(t, "two", "80:80/TCP")); !errors.As(err, &taken) {
		t.Errorf("error %v", err)
	}
	later := newBridge(t, run)
	later.records.Boot = func() (string, error) { return "later", nil }
	mustSetupPod(t, host, later, "2", netns.None(), nettest.PodWith(t, "two", "80:80/TCP"))
	if ids, err := later.Holders(); err != nil || len(ids) != 2 {
		t.Errorf("held: %v, %v", ids, err)
	}
	nettest.Teardown(t, host, later, "1")
	nettest.Teardown(t, host, later, "2")
	nettest.Bare(t, host, run)
}

// BenchmarkSetupHostPort measures Setup of a pod with a host port beside 50 others that have one.
func BenchmarkSetupHostPort(b *testing.B) {
	host, ns := nettest.NewNS(b), nettest.NewNS(b)
	br := newBridge(b, b.TempDir())
	for i := range 50 {
		mustSetupPod(b, host, br, fmt.Sprint(i), nettest.NewNS(b), nettest.PodWith(b, fmt.Sprint(i), fmt.Sprintf("%d:80/TCP", 9000+i)))
	}
	p := nettest.PodWith(b, "x", "8080:80/TCP")
	nettest.In(b, host, func() error {
		for b.Loop() {
			if _, err := br.Setup(context.Background(), "x", nettest.Path(ns), p); err != nil {
				return err
			}
			b.StopTimer()
			if err := br.Teardown(context.Background(), "x"); err != nil {
				return err
			}
			b.StartTimer()
		}
		return nil
	})
	for i := range 50 {
		nettest.Teardown(b, host, br, fmt.Sprint(i))
	}
}

// TestSharedHostPort: while a pod is updated, its port is that of one of the two pods at a time: the former one's until it
// yields, then the other one's. Connections stay, and no connection is refused.
func TestSharedHostPort(t *testing.T) {
	host, outside := nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, outside)
	run := t.TempDir()
	br := newBridge(t, run)
	podOf := func(name string, surge bool) *v1.Pod {
		p := nettest.PodWith(t, name, "8080:80/TCP", "5353:53/UDP")
		p.Annotations = map[string]string{pod.AnnotationWorkload: "Deployment/web"}
		if surge {
			p.Annotations[pod.AnnotationSurge] = "Deployment/web"
		}
		return p
	}
	start := func(id string, p *v1.Pod) {
		t.Helper()
		ns := nettest.NewNS(t)
		mustSetupPod(t, host, br, id, ns, p)
		nettest.ServeTCP(t, ns, ":80", id)
		serveUDP(t, ns, ":53", id)
	}
	answers := func(want string) {
		t.Helper()
		for network, port := range map[string]string{"tcp": "8080", "udp": "5353"} {
			for from, ns := range map[string]netns.NsHandle{"192.0.2.2:": outside, "127.0.0.1:": host} {
				if got, err := nettest.Ask(ns, network, from+port); err != nil || !strings.HasPrefix(got, want+" ") {
					t.Errorf("%s %s: %q, %v; want %s", network, from, got, err, want)
				}
			}
		}
	}
	yield := func(id string) {
		t.Helper()
		nettest.In(t, host, func() error { return br.Yield(context.Background(), id) })
	}
	start("old", podOf("web-0", false))
	answers("old")
	yield("old") // to nobody
	answers("old")
	start("surge", podOf("web-1", true))
	answers("old")
	var inUse *portmap.PortInUseError
	if _, err := nettest.SetupPod(host, br, "other", nettest.NewNS(t), nettest.PodWith(t, "b", "8080:80/TCP")); !errors.As(err, &inUse) {
		t.Errorf("another pod: %v", err)
	}
	nettest.Teardown(t, host, br, "other")
	var c net.Conn
	nettest.In(t, outside, func() (err error) { c, err = net.Dial("udp4", "192.0.2.2:5353"); return err })
	defer c.Close()
	yield("old")
	answers("surge")
	nettest.In(t, host, br.Repair)
	answers("surge")
	yield("old") // it has none
	yield("none")
	answers("surge")
	nettest.Teardown(t, host, br, "old")
	answers("surge")
	start("new", podOf("web-0", false))
	answers("surge")
	// The next update begins while the pod that was there for the last one is still ending: it never gets them again.
	yield("surge")
	answers("new")
	start("second", podOf("web-2", true))
	answers("new")
	yield("new")
	answers("second")
	nettest.Teardown(t, host, br, "surge")
	nettest.Teardown(t, host, br, "new")
	answers("second")
	start("newest", podOf("web-0", false))
	answers("second")
	nettest.Teardown(t, host, br, "second") // without yielding, as after a crash
	answers("newest")
	// A record of a podrun that knew no groups.
	file := filepath.Join(br.records.Path, records.PortDir, "newest")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	former := regexp.MustCompile(`,"(group|sequence)":("[^"]*"|\d+)`).ReplaceAll(text, nil)
	if err := os.WriteFile(file, former, 0o600); err != nil || len(former) == len(text) {
		t.Fatal(err, string(text))
	}
	start("last", podOf("web-1", true))
	answers("newest")
	yield("newest")
	answers("last")
	for _, id := range []string{"newest", "last"} {
		nettest.Teardown(t, host, br, id)
	}
	nettest.Bare(t, host, run)
}
