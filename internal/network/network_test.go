package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/layout"
)

// newNS returns a fresh network namespace with lo up.
func newNS(t testing.TB) netns.NsHandle {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, for network namespaces")
	}
	type made struct {
		ns  netns.NsHandle
		err error
	}
	c := make(chan made)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		ns, err := netns.New()
		c <- made{ns, err}
	}()
	m := <-c
	if m.err != nil {
		t.Fatal(m.err)
	}
	t.Cleanup(func() { m.ns.Close() })
	in(t, m.ns, func() error {
		return netlink.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: loopback}})
	})
	return m.ns
}

// try runs f in a namespace.
func try(ns netns.NsHandle, f func() error) error {
	c := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		if err := netns.Set(ns); err != nil {
			c <- err
			return
		}
		c <- f()
	}()
	return <-c
}

func in(t testing.TB, ns netns.NsHandle, f func() error) {
	t.Helper()
	if err := try(ns, f); err != nil {
		t.Fatal(err)
	}
}

func path(ns netns.NsHandle) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(ns)) }

func newBridge(t testing.TB, run string) *Bridge {
	t.Helper()
	return NewBridge(Options{Dirs: layout.Dirs{Run: run}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
}

func setup(host netns.NsHandle, b *Bridge, id string, pod netns.NsHandle) (addr netip.Addr, err error) {
	err = try(host, func() error {
		addrs, err := b.Setup(context.Background(), id, path(pod))
		if err == nil {
			addr = addrs[0]
		}
		return err
	})
	return addr, err
}

func mustSetup(t testing.TB, host netns.NsHandle, b *Bridge, id string, pod netns.NsHandle) netip.Addr {
	t.Helper()
	addr, err := setup(host, b, id, pod)
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

func teardown(t testing.TB, host netns.NsHandle, b *Bridge, id string) {
	t.Helper()
	in(t, host, func() error { return b.Teardown(context.Background(), id) })
}

// bare checks that nothing of podrun's is left in the host namespace and the run directory.
func bare(t testing.TB, host netns.NsHandle, run string) {
	t.Helper()
	in(t, host, func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			if name := l.Attrs().Name; strings.HasPrefix(name, "podrun") || strings.HasPrefix(name, "pr") {
				t.Errorf("link %s is left", name)
			}
		}
		c, err := nftables.New()
		if err != nil {
			return err
		}
		tables, err := c.ListTables()
		if err != nil {
			return err
		}
		for _, table := range tables {
			t.Errorf("nftables table %s is left", table.Name)
		}
		return nil
	})
	left, err := os.ReadDir(run)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		t.Errorf("%s is left", e.Name())
	}
}

// talk sends a line by TCP from one namespace to a listener in another and returns who the listener saw.
func talk(t *testing.T, from, to netns.NsHandle, addr string) netip.Addr {
	t.Helper()
	var l net.Listener
	in(t, to, func() (err error) {
		l, err = net.Listen("tcp4", net.JoinHostPort(addr, "0"))
		return err
	})
	defer l.Close()
	var out net.Conn
	in(t, from, func() (err error) {
		out, err = net.DialTimeout("tcp4", l.Addr().String(), 10*time.Second)
		return err
	})
	if _, err := io.WriteString(out, "hello"); err != nil {
		t.Fatal(err)
	}
	out.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if b, err := io.ReadAll(conn); err != nil || string(b) != "hello" {
		t.Fatalf("%q, %v", b, err)
	}
	return netip.MustParseAddrPort(conn.RemoteAddr().String()).Addr()
}

func TestPodsReachEachOtherAndTheHost(t *testing.T) {
	host, a, b := newNS(t), newNS(t), newNS(t)
	run := t.TempDir()
	br := newBridge(t, run)
	addrA := mustSetup(t, host, br, "aaaa", a)
	addrB := mustSetup(t, host, br, "bbbb", b)
	rec, err := br.load()
	if err != nil {
		t.Fatal(err)
	}
	gateway := gatewayOf(rec.Subnet).String()
	for _, c := range []struct {
		name     string
		from, to netns.NsHandle
		addr     string
		seen     netip.Addr
	}{
		{"pod to pod", a, b, addrB.String(), addrA},
		{"and back", b, a, addrA.String(), addrB},
		{"pod to host", a, host, gateway, addrA},
		{"host to pod", host, a, addrA.String(), netip.MustParseAddr(gateway)},
		{"pod to itself", a, a, addrA.String(), addrA},
		{"localhost", a, a, "127.0.0.1", netip.MustParseAddr("127.0.0.1")},
	} {
		if seen := talk(t, c.from, c.to, c.addr); seen != c.seen {
			t.Errorf("%s: seen as %s, want %s", c.name, seen, c.seen)
		}
	}
	teardown(t, host, br, "aaaa")
	if seen := talk(t, b, host, gateway); seen != addrB {
		t.Errorf("after the other has gone: seen as %s", seen)
	}
	teardown(t, host, br, "bbbb")
	teardown(t, host, br, "bbbb")
	bare(t, host, run)
}

// joinOutside connects the host namespace with another machine, which knows no way to the pods.
func joinOutside(t *testing.T, host, outside netns.NsHandle) {
	t.Helper()
	in(t, host, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = "up0", 1400
		veth := netlink.NewVeth(attrs)
		veth.PeerName, veth.PeerNamespace = "up0", netlink.NsFd(int(outside))
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		if err := netlink.AddrAdd(veth, &netlink.Addr{IPNet: ipNet(netip.MustParseAddr("192.0.2.2"), 24)}); err != nil {
			return err
		}
		if err := netlink.LinkSetUp(veth); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{
			LinkIndex: veth.Index, Dst: ipNet(netip.IPv4Unspecified(), 0), Gw: net.IPv4(192, 0, 2, 1),
		})
	})
	in(t, outside, func() error {
		link, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(netip.MustParseAddr("192.0.2.1"), 24)}); err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	})
}

func TestPodsReachTheWorldAsTheHost(t *testing.T) {
	host, pod, outside := newNS(t), newNS(t), newNS(t)
	joinOutside(t, host, outside)
	run := t.TempDir()
	br := newBridge(t, run)
	mustSetup(t, host, br, "aaaa", pod)
	if seen := talk(t, pod, outside, "192.0.2.1"); seen != netip.MustParseAddr("192.0.2.2") {
		t.Errorf("seen as %s", seen)
	}
	in(t, pod, func() error {
		link, err := netlink.LinkByName(podLink)
		if err == nil && link.Attrs().MTU != 1400 {
			t.Errorf("mtu %d, want the uplink's 1400", link.Attrs().MTU)
		}
		return err
	})
	in(t, host, func() error {
		addr, err := HostIP()
		if addr != netip.MustParseAddr("192.0.2.2") {
			t.Errorf("host's address %s", addr)
		}
		return err
	})
	teardown(t, host, br, "aaaa")
	bare(t, host, run)
}

func TestHostIPWithoutRoute(t *testing.T) {
	host, pod := newNS(t), newNS(t)
	run := t.TempDir()
	br := newBridge(t, run)
	mustSetup(t, host, br, "aaaa", pod)
	in(t, host, func() error {
		if addr, err := HostIP(); err == nil {
			t.Errorf("a host with only podrun's bridge has address %s", addr)
		}
		return nil
	})
	teardown(t, host, br, "aaaa")
}

// TestCyclesLeaveNothing: 300 pods come and go beside one that stays.
func TestCyclesLeaveNothing(t *testing.T) {
	host, stays := newNS(t), newNS(t)
	run := t.TempDir()
	br := newBridge(t, run)
	kept := mustSetup(t, host, br, "kept", stays)
	seen := map[netip.Addr]bool{kept: true}
	for i := range 300 {
		pod := newNS(t)
		addr := mustSetup(t, host, br, fmt.Sprint(i), pod)
		if seen[addr] {
			t.Fatalf("%s given again at once", addr)
		}
		seen[addr] = true
		if i%2 == 0 {
			pod.Close() // as when the pins go first
		}
		teardown(t, host, br, fmt.Sprint(i))
	}
	held, err := br.addresses()
	if err != nil || len(held) != 1 || held[kept] != "kept" {
		t.Fatalf("held %v, %v", held, err)
	}
	in(t, host, func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			if name := l.Attrs().Name; strings.HasPrefix(name, "pr") && name != br.portName("kept") {
				t.Errorf("link %s is left", name)
			}
		}
		return err
	})
	teardown(t, host, br, "kept")
	bare(t, host, run)
}

// TestFiftyAtOnce: two bridges of one run directory, as two processes have them, serve 50 pods at once.
func TestFiftyAtOnce(t *testing.T) {
	host := newNS(t)
	run := t.TempDir()
	bridges := []*Bridge{newBridge(t, run), newBridge(t, run)}
	var mu sync.Mutex
	given := map[netip.Addr]int{}
	var wg sync.WaitGroup
	for i := range 50 {
		pod := newNS(t)
		wg.Go(func() {
			addr, err := setup(host, bridges[i%2], fmt.Sprint(i), pod)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if other, twice := given[addr]; twice {
				t.Errorf("%s given to %d and %d", addr, other, i)
			}
			given[addr] = i
		})
	}
	wg.Wait()
	for i := range 50 {
		wg.Go(func() {
			if err := try(host, func() error { return bridges[(i+1)%2].Teardown(context.Background(), fmt.Sprint(i)) }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	bare(t, host, run)
}

const childEnv = "PODRUN_TEST_NETWORK_RUN"

// TestChild is the second process of TestSecondProcessAgrees.
func TestChild(t *testing.T) {
	run, ok := os.LookupEnv(childEnv)
	if !ok {
		t.Skip("run by TestSecondProcessAgrees")
	}
	addrs, err := newBridge(t, run).Setup(t.Context(), "child", "/proc/self/fd/3")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("address", addrs[0])
}

func TestSecondProcessAgrees(t *testing.T) {
	host, a, b := newNS(t), newNS(t), newNS(t)
	run := t.TempDir()
	br := newBridge(t, run)
	addrA := mustSetup(t, host, br, "parent", a)
	var out []byte
	in(t, host, func() (err error) {
		cmd := exec.Command(os.Args[0], "-test.run=^TestChild$")
		cmd.Env = append(os.Environ(), childEnv+"="+run)
		fd, err := unix.Dup(int(b))
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), "netns")
		defer f.Close()
		cmd.ExtraFiles = []*os.File{f}
		out, err = cmd.CombinedOutput()
		return err
	})
	_, text, _ := strings.Cut(string(out), "address ")
	addrB, err := netip.ParseAddr(strings.Fields(text)[0])
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if addrB != addrA.Next() {
		t.Errorf("%s, then %s", addrA, addrB)
	}
	talk(t, a, b, addrB.String())
	teardown(t, host, br, "child")
	teardown(t, host, br, "parent")
	bare(t, host, run)
}

// TestSideBySide: podruns of several run directories do not touch each other's, even with the same id.
func TestSideBySide(t *testing.T) {
	host, a, b := newNS(t), newNS(t), newNS(t)
	runA, runB := t.TempDir(), t.TempDir()
	brA, brB := newBridge(t, runA), newBridge(t, runB)
	mustSetup(t, host, brA, "same", a)
	addrB := mustSetup(t, host, brB, "same", b)
	recA, _ := brA.load()
	recB, _ := brB.load()
	if recA.Bridge == recB.Bridge || recA.Subnet.Overlaps(recB.Subnet) {
		t.Errorf("%+v and %+v", recA, recB)
	}
	teardown(t, host, brA, "same")
	talk(t, host, b, addrB.String())
	teardown(t, host, brB, "same")
	bare(t, host, runA)
	bare(t, host, runB)
}

// TestLeftovers: whatever an interrupted process or an older boot left is used or removed.
func TestLeftovers(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, host netns.NsHandle, b *Bridge){
		"bridge gone, as when a container restarts": func(t *testing.T, host netns.NsHandle, b *Bridge) {
			rec, _ := b.load()
			in(t, host, func() error {
				handle, err := netlink.NewHandle()
				if err != nil {
					return err
				}
				defer handle.Close()
				return errors.Join(removeLink(handle, rec.Bridge), removeLink(handle, b.portName("old")))
			})
		},
		"bridge down, as when its making was cut off": func(t *testing.T, host netns.NsHandle, b *Bridge) {
			rec, _ := b.load()
			in(t, host, func() error {
				link, err := netlink.LinkByName(rec.Bridge)
				if err != nil {
					return err
				}
				return errors.Join(netlink.AddrDel(link, &netlink.Addr{IPNet: ipNet(gatewayOf(rec.Subnet), rec.Subnet.Bits())}),
					netlink.LinkSetDown(link), unmasquerade(rec.Bridge))
			})
		},
		"link but no address": func(t *testing.T, host netns.NsHandle, b *Bridge) {
			if _, err := b.release("old"); err != nil {
				t.Fatal(err)
			}
		},
		"torn record of the last address": func(t *testing.T, host netns.NsHandle, b *Bridge) {
			if err := os.WriteFile(filepath.Join(b.dir, lastName), []byte("10.6"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			host, a, again, other := newNS(t), newNS(t), newNS(t), newNS(t)
			run := t.TempDir()
			b := newBridge(t, run)
			mustSetup(t, host, b, "old", a)
			harm(t, host, b)
			mustSetup(t, host, b, "old", again)
			addr := mustSetup(t, host, b, "new", other)
			talk(t, again, other, addr.String())
			teardown(t, host, b, "old")
			teardown(t, host, b, "new")
			bare(t, host, run)
		})
	}
}

// TestOtherBoot: addresses of an older boot are dropped, and its names are not touched.
func TestOtherBoot(t *testing.T) {
	host, a, b := newNS(t), newNS(t), newNS(t)
	run := t.TempDir()
	old := newBridge(t, run)
	old.boot = func() (string, error) { return "older", nil }
	mustSetup(t, host, old, "old", a)
	rec, _ := old.load()
	now := newBridge(t, run)
	mustSetup(t, host, now, "new", b)
	held, err := now.addresses()
	if err != nil || len(held) != 1 {
		t.Fatalf("held %v, %v", held, err)
	}
	recNow, _ := now.load()
	if recNow.Bridge == rec.Bridge {
		t.Errorf("took over %s, which was there", rec.Bridge)
	}
	teardown(t, host, now, "new")
	in(t, host, func() error {
		_, err := netlink.LinkByName(rec.Bridge)
		return err
	})
}

func TestErrors(t *testing.T) {
	host := newNS(t)
	run := t.TempDir()
	br := newBridge(t, run)
	in(t, host, func() error {
		if _, err := br.Setup(context.Background(), "x", "/nowhere"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("error %v", err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := br.Setup(ctx, "x", "/nowhere"); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		return br.Teardown(context.Background(), "x")
	})
	bare(t, host, run)
	if err := hint(fmt.Errorf("adding: %w", unix.EPERM)); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "hostNetwork: true") {
		t.Errorf("error %v", err)
	}
}

// TestNotPermitted: where no link may be made, the error says what works.
func TestNotPermitted(t *testing.T) {
	host, pod := newNS(t), newNS(t)
	run := t.TempDir()
	br := newBridge(t, run)
	err := try(host, func() error {
		// Of this thread only, which ends.
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&header, &data[0]); err != nil {
			return err
		}
		data[0].Effective &^= 1 << unix.CAP_NET_ADMIN
		if err := unix.Capset(&header, &data[0]); err != nil {
			return err
		}
		_, err := br.Setup(context.Background(), "x", path(pod))
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "hostNetwork: true") {
		t.Fatalf("error %v", err)
	}
	teardown(t, host, br, "x")
	bare(t, host, run)
}

func TestFull(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	b := newBridge(t, t.TempDir())
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	rec := record{Subnet: netip.MustParsePrefix("10.64.0.0/29")}
	var got []string
	for i := range 5 {
		addr, err := b.allocate(rec, fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, addr.String())
	}
	if want := "10.64.0.2 10.64.0.3 10.64.0.4 10.64.0.5 10.64.0.6"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if addr, err := b.allocate(rec, "3"); err != nil || addr.String() != "10.64.0.5" {
		t.Errorf("the same id again: %s, %v", addr, err)
	}
	if _, err := b.allocate(rec, "more"); err == nil || !strings.Contains(err.Error(), "all 5 are taken") {
		t.Errorf("error %v", err)
	}
	if last, err := b.release("1"); err != nil || last {
		t.Fatal(last, err)
	}
	if addr, err := b.allocate(rec, "more"); err != nil || addr.String() != "10.64.0.3" {
		t.Errorf("%s, %v", addr, err)
	}
}

func TestFreeSubnet(t *testing.T) {
	parse := func(texts ...string) (prefixes []netip.Prefix) {
		for _, text := range texts {
			prefixes = append(prefixes, netip.MustParsePrefix(text))
		}
		return prefixes
	}
	first, err := freeSubnet("/run/podrun", nil)
	if err != nil || !netip.MustParsePrefix("10.64.0.0/10").Contains(first.Addr()) || first.Bits() != 20 || first.Masked() != first {
		t.Fatalf("%s, %v", first, err)
	}
	for name, c := range map[string]struct {
		taken []netip.Prefix
		in    string // the range it must come from; "" = none
	}{
		"the first is taken":     {[]netip.Prefix{first}, "10.64.0.0/10"},
		"an address in it":       {[]netip.Prefix{netip.PrefixFrom(first.Addr().Next(), 32)}, "10.64.0.0/10"},
		"a route to all of 10/8": {parse("10.0.0.0/8"), "172.16.0.0/12"},
		"only one subnet free":   {parse("10.0.0.0/8", "172.16.0.0/12", "100.64.0.0/10", "192.168.0.0/17", "192.168.128.0/18", "192.168.192.0/19", "192.168.240.0/20"), "192.168.224.0/20"},
		"all private ones":       {parse("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"), ""},
	} {
		got, err := freeSubnet("/run/podrun", c.taken)
		if c.in == "" {
			if err == nil {
				t.Errorf("%s: got %s", name, got)
			}
			continue
		}
		if err != nil || overlaps(got, c.taken) || !netip.MustParsePrefix(c.in).Contains(got.Addr()) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

// TestAvoidsHostRoutes: a subnet that the host uses is not taken, and the choice is kept.
func TestAvoidsHostRoutes(t *testing.T) {
	host, pod := newNS(t), newNS(t)
	run := t.TempDir()
	br := newBridge(t, run)
	would, err := freeSubnet(br.run, nil)
	if err != nil {
		t.Fatal(err)
	}
	in(t, host, func() error {
		return netlink.RouteAdd(&netlink.Route{LinkIndex: loopback, Scope: unix.RT_SCOPE_LINK, Dst: ipNet(would.Addr(), 22), Table: 77})
	})
	addr := mustSetup(t, host, br, "x", pod)
	if would.Contains(addr) {
		t.Errorf("%s is in %s, which the host uses", addr, would)
	}
	teardown(t, host, br, "x")
}

func TestNames(t *testing.T) {
	host := newNS(t)
	in(t, host, func() error {
		h, err := netlink.NewHandle()
		if err != nil {
			return err
		}
		defer h.Close()
		name, err := freeName(h, "/run/podrun")
		if name != "podrun0" {
			t.Errorf("name %s", name)
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "podrun0"
		if err := errors.Join(err, h.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})); err != nil {
			return err
		}
		for _, run := range []string{"/run/podrun", "/tmp/x"} {
			name, err := freeName(h, run)
			if err != nil || !strings.HasPrefix(name, "podrun-") || len(name) != 13 {
				t.Errorf("name %s, %v", name, err)
			}
		}
		return nil
	})
}

func BenchmarkSetup(b *testing.B) {
	host, stays, pod := newNS(b), newNS(b), newNS(b)
	br := newBridge(b, b.TempDir())
	mustSetup(b, host, br, "kept", stays)
	in(b, host, func() error {
		for b.Loop() {
			if _, err := br.Setup(context.Background(), "x", path(pod)); err != nil {
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
	teardown(b, host, br, "kept")
}

func BenchmarkTeardown(b *testing.B) {
	host, stays, pod := newNS(b), newNS(b), newNS(b)
	br := newBridge(b, b.TempDir())
	mustSetup(b, host, br, "kept", stays)
	in(b, host, func() error {
		for b.Loop() {
			b.StopTimer()
			if _, err := br.Setup(context.Background(), "x", path(pod)); err != nil {
				return err
			}
			b.StartTimer()
			if err := br.Teardown(context.Background(), "x"); err != nil {
				return err
			}
		}
		return nil
	})
	teardown(b, host, br, "kept")
}
