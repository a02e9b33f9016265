package bridge

import (
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

	"podrun.io/podrun/internal/network/nettest"
	"podrun.io/podrun/internal/network/portmap"
)

// addIPv6 gives the way between the machine and outside IPv6: 2001:db8::2 and 2001:db8::1.
func addIPv6(t *testing.T, host, outside netns.NsHandle) {
	t.Helper()
	for ns, text := range map[netns.NsHandle]string{host: "2001:db8::2", outside: "2001:db8::1"} {
		nettest.In(t, ns, func() error {
			link, err := netlink.LinkByName("up0")
			if err != nil {
				return err
			}
			addr := netip.MustParseAddr(text)
			return netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(addr, 64), Flags: noDADFlag(addr)})
		})
	}
	nettest.In(t, host, func() error {
		link, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		return errors.Join(
			netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(netip.IPv6Unspecified(), 0), Gw: net.ParseIP("2001:db8::1")}),
			os.WriteFile("/proc/sys/net/ipv6/conf/up0/accept_ra", []byte("1"), 0))
	})
}

// serveTCP6 answers every connection to the port with word and who it saw.
func serveTCP6(t testing.TB, ns netns.NsHandle, at, word string) {
	t.Helper()
	var l net.Listener
	nettest.In(t, ns, func() (err error) { l, err = net.Listen("tcp6", at); return err })
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(word + " " + c.RemoteAddr().(*net.TCPAddr).IP.String()))
			c.Close()
		}
	}()
}

// TestDualStack: if the machine has an IPv6 default route, pods have IPv6 connectivity too.
func TestDualStack(t *testing.T) {
	host, web, other, outside := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, outside)
	addIPv6(t, host, outside)
	run := t.TempDir()
	br := newBridge(t, run)
	setup := func(id string, ns netns.NsHandle, ports ...string) (four, six netip.Addr) {
		t.Helper()
		nettest.In(t, host, func() error {
			addrs, err := br.Setup(t.Context(), id, nettest.Path(ns), nettest.PodWith(t, id, ports...))
			if err == nil && (len(addrs) != 2 || !addrs[0].Is4() || !addrs[1].Is6()) {
				err = errors.New("addresses " + addrs[0].String())
			}
			if err == nil {
				four, six = addrs[0], addrs[1]
			}
			return err
		})
		return four, six
	}
	four, six := setup("web", web, "8080:80/TCP", "[2001:db8::2]:81:80/TCP")
	_, sixOther := setup("other", other)
	if want := netip.MustParsePrefix("fd00::/8"); !want.Contains(six) || six.As16()[15] != four.As4()[3] || sixOther == six {
		t.Errorf("%s beside %s, and %s", six, four, sixOther)
	}
	serveTCP6(t, web, "[::]:80", "web")
	serveTCP6(t, outside, "[::]:90", "world")
	nettest.ServeTCP(t, web, ":80", "web4")
	rec, _ := br.records.Load()
	gateway := gatewayOf(rec.Subnet6).String()
	for _, c := range []struct {
		name, to string
		from     netns.NsHandle
		want     string
	}{
		{"pod to pod", "[" + six.String() + "]:80", other, "web " + sixOther.String()},
		{"machine to pod", "[" + six.String() + "]:80", host, "web " + gateway},
		{"pod to the world", "[2001:db8::1]:90", web, "world 2001:db8::2"},
		{"the world to a host port", "[2001:db8::2]:8080", outside, "web 2001:db8::1"},
		{"and by IPv4", "192.0.2.2:8080", outside, "web4 192.0.2.1"},
		{"machine to a host port", "[2001:db8::2]:8080", host, "web 2001:db8::2"},
		{"another pod to a host port", "[2001:db8::2]:8080", other, "web " + gateway},
		{"the pod itself", "[2001:db8::2]:8080", web, "web " + gateway},
		{"hostIP", "[2001:db8::2]:81", outside, "web 2001:db8::1"},
		{"hostIP, by IPv4", "192.0.2.2:81", outside, ""},
	} {
		if got, err := nettest.Ask(c.from, "tcp", c.to); got != c.want {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
	}
	nettest.In(t, host, func() error {
		if conn, err := net.DialTimeout("tcp6", "[::1]:8080", 5*time.Second); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("::1, from which nothing can be forwarded: %v, %v", conn, err)
		}
		_, err := br.Setup(t.Context(), "loopback", nettest.Path(nettest.NewNS(t)), nettest.PodWith(t, "loopback", "[::1]:82:80/TCP"))
		if err == nil || !strings.Contains(err.Error(), "cannot forward from ::1") {
			t.Errorf("a hostIP of ::1: %v", err)
		}
		return nil
	})
	nettest.In(t, host, func() error {
		for path, want := range map[string]string{"all/forwarding": "1", "up0/accept_ra": "2", rec.Bridge + "/accept_ra": "0"} {
			if b, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + path); err != nil || strings.TrimSpace(string(b)) != want {
				t.Errorf("%s is %s, %v; want %s", path, b, err, want)
			}
		}
		return nil
	})
	var taken *portmap.PortInUseError
	nettest.In(t, host, func() error {
		l, err := net.Listen("tcp6", "[::1]:7070")
		if err != nil {
			return err
		}
		defer l.Close()
		_, err = br.Setup(t.Context(), "late", nettest.Path(nettest.NewNS(t)), nettest.PodWith(t, "late", "7070:80/TCP"))
		if !errors.As(err, &taken) {
			t.Errorf("a process has the port by IPv6: %v", err)
		}
		return nil
	})
	for _, id := range []string{"web", "other", "late", "loopback"} {
		nettest.Teardown(t, host, br, id)
	}
	nettest.Bare(t, host, run)
}

// TestSmallMTU: the pods' MTU is the smaller one of the two default routes; where it is too small for IPv6, pods have
// IPv4.
func TestSmallMTU(t *testing.T) {
	for _, c := range []struct {
		four, six int
		want      int
		addresses int
	}{{1200, 1500, 1200, 1}, {1279, 1400, 1279, 1}, {1280, 1400, 1280, 2}, {1400, 1280, 1280, 2}, {9000, 9000, 1500, 2}} {
		host, pod, outside := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
		nettest.JoinOutside(t, host, outside)
		command(t, host, fmt.Sprintf("ip link set up0 mtu %d", c.six))
		addIPv6(t, host, outside)
		command(t, host, fmt.Sprintf("ip link add wan mtu %d type veth peer name way; ip link set way up; ip link set wan up; "+
			"ip addr add 198.51.100.2/24 dev wan; ip route replace default via 198.51.100.1", c.four))
		nettest.In(t, host, func() error {
			addrs, err := newBridge(t, t.TempDir()).Setup(t.Context(), "a", nettest.Path(pod), nettest.NoPorts)
			if err == nil && len(addrs) != c.addresses {
				t.Errorf("%+v: addresses %v", c, addrs)
			}
			return err
		})
		if got := command(t, pod, "ip link show eth0"); !strings.Contains(got, fmt.Sprintf(" mtu %d ", c.want)) {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// TestSmallMTULater: a bridge that was removed by others gets no IPv6 again where the MTU has become too small for it.
func TestSmallMTULater(t *testing.T) {
	host, outside := nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, outside)
	addIPv6(t, host, outside)
	br := newBridge(t, t.TempDir())
	nettest.MustSetup(t, host, br, "a", nettest.NewNS(t))
	rec, err := br.records.Load()
	if err != nil || !rec.Subnet6.IsValid() {
		t.Fatal(rec, err)
	}
	command(t, host, "ip link del "+rec.Bridge+"; ip link set up0 mtu 1200")
	nettest.MustSetup(t, host, br, "b", nettest.NewNS(t))
}

// TestLateIPv6: a pod that starts when the machine has got IPv6 has it, and its host ports answer by it, beside a pod
// that does not have it.
func TestLateIPv6(t *testing.T) {
	host, old, late, outside := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
	nettest.JoinOutside(t, host, outside)
	run := t.TempDir()
	br := newBridge(t, run)
	mustSetupPod(t, host, br, "old", old, nettest.PodWith(t, "old", "8080:80/TCP"))
	addIPv6(t, host, outside)
	mustSetupPod(t, host, br, "late", late, nettest.PodWith(t, "late", "[2001:db8::2]:81:80/TCP", "8081:80/TCP"))
	nettest.ServeTCP(t, old, ":80", "old")
	serveTCP6(t, late, "[::]:80", "late")
	serveTCP6(t, outside, "[::]:90", "world")
	for _, c := range []struct {
		to   string
		from netns.NsHandle
		want string
	}{
		{"[2001:db8::1]:90", late, "world 2001:db8::2"},
		{"[2001:db8::2]:81", outside, "late 2001:db8::1"},
		{"[2001:db8::2]:8081", outside, "late 2001:db8::1"},
		{"192.0.2.2:8080", outside, "old 192.0.2.1"},
	} {
		if got, err := nettest.Ask(c.from, "tcp", c.to); got != c.want {
			t.Errorf("%s answers %q, %v; want %q", c.to, got, err, c.want)
		}
	}
	nettest.Teardown(t, host, br, "old")
	nettest.Teardown(t, host, br, "late")
	nettest.Bare(t, host, run)
}

// TestIPv6Disabled: where an administrator disables IPv6, rules for IPv4 that are flushed return, whoever restores them,
// and pods start with IPv4 alone. When IPv6 is back, so are host ports by it of pods that had it, and of no others.
func TestIPv6Disabled(t *testing.T) {
	for name, repair := range map[string]func(b *Bridge) error{
		"serve": (*Bridge).Repair, "pod": func(*Bridge) error { return nil },
	} {
		t.Run(name, func(t *testing.T) { testIPv6Disabled(t, repair) })
	}
}

func testIPv6Disabled(t *testing.T, repair func(b *Bridge) error) {
	f := newFlushed(t)
	mustSetupPod(t, f.host, f.br, "gone", nettest.NewNS(t), nettest.PodWith(t, "gone", "8081:80/TCP"))
	command(t, f.host, "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1")
	for _, change := range []string{"true", "nft flush ruleset", "true"} {
		command(t, f.host, change)
		nettest.In(t, f.host, func() error { return repair(f.br) })
		nettest.In(t, f.host, func() error {
			addrs, err := f.br.Setup(t.Context(), "late", nettest.Path(nettest.NewNS(t)), nettest.PodWith(t, "late", "8082:80/TCP"))
			if len(addrs) != 1 {
				t.Errorf("addresses %v", addrs)
			}
			return err
		})
		f.works(t)
		if rec, _ := f.br.records.Load(); slices.Contains(f.tables(t), "table ip6 "+portmap.Table(rec.Bridge)) {
			t.Error("host ports by IPv6 are left")
		}
		nettest.Teardown(t, f.host, f.br, "late")
	}
	if n := strings.Count(f.log.String(), "are restored"); n > 1 {
		t.Errorf("restored %d times: %s", n, f.log)
	}
	nettest.Teardown(t, f.host, f.br, "gone")
	rec, _ := f.br.records.Load()
	command(t, f.host, "sysctl -qw net.ipv6.conf."+rec.Bridge+".accept_dad=0") // no second of waiting for its link-local address
	command(t, f.host, "sysctl -qw net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0; "+
		"ip addr add 2001:db8::2/64 dev up0 nodad; ip -6 route add default via 2001:db8::1")
	nettest.MustSetup(t, f.host, f.br, "later", nettest.NewNS(t))
	serveTCP6(t, f.web, "[::]:80", "web")
	if got, err := nettest.Ask(f.outside, "tcp", "[2001:db8::2]:8080"); got != "web 2001:db8::1" {
		t.Errorf("a host port by IPv6: %q, %v", got, err)
	}
	if got, err := nettest.Ask(f.outside, "tcp", "[2001:db8::2]:8081"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a host port of a pod that is gone: %q, %v", got, err)
	}
}

// TestForwardDropOfIPv6: pods reach other machines by IPv6 although the policy of ip6tables'
// FORWARD chain is drop, as Docker sets it, and the policy stays.
func TestForwardDropOfIPv6(t *testing.T) {
	host, pod, outside := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
	nettest.NeedIPTables(t, host)
	nettest.JoinOutside(t, host, outside)
	addIPv6(t, host, outside)
	command(t, host, "ip6tables-nft -P FORWARD DROP")
	br := newBridge(t, t.TempDir())
	nettest.MustSetup(t, host, br, "a", pod)
	serveTCP6(t, outside, "[::]:90", "world")
	if got, err := nettest.Ask(pod, "tcp", "[2001:db8::1]:90"); got != "world 2001:db8::2" {
		t.Errorf("%q, %v", got, err)
	}
	nettest.Teardown(t, host, br, "a")
	if got := command(t, host, "ip6tables-nft -S FORWARD"); got != "-P FORWARD DROP\n" {
		t.Errorf("afterwards: %s", got)
	}
}
