package bridge

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/network/nettest"
)

func TestPodsReachEachOtherAndTheHost(t *testing.T) {
	host, a, b := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
	run := t.TempDir()
	br := newBridge(t, run)
	addrA := nettest.MustSetup(t, host, br, "aaaa", a)
	addrB := nettest.MustSetup(t, host, br, "bbbb", b)
	rec, err := br.records.Load()
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
		if seen := nettest.Talk(t, c.from, c.to, c.addr); seen != c.seen {
			t.Errorf("%s: seen as %s, want %s", c.name, seen, c.seen)
		}
	}
	nettest.Teardown(t, host, br, "aaaa")
	if seen := nettest.Talk(t, b, host, gateway); seen != addrB {
		t.Errorf("after the other has gone: seen as %s", seen)
	}
	nettest.Teardown(t, host, br, "bbbb")
	nettest.Teardown(t, host, br, "bbbb")
	nettest.Bare(t, host, run)
}

// TestCyclesLeaveNothing: 300 pods start and end beside one that stays, and leave nothing.
func TestCyclesLeaveNothing(t *testing.T) {
	host, stays := nettest.NewNS(t), nettest.NewNS(t)
	run := t.TempDir()
	br := newBridge(t, run)
	kept := nettest.MustSetup(t, host, br, "kept", stays)
	seen := map[netip.Addr]bool{kept: true}
	for i := range 300 {
		pod := nettest.NewNS(t)
		addr := nettest.MustSetup(t, host, br, fmt.Sprint(i), pod)
		if seen[addr] {
			t.Fatalf("%s given again at once", addr)
		}
		seen[addr] = true
		if i%2 == 0 {
			pod.Close() // as when the pins go first
		}
		nettest.Teardown(t, host, br, fmt.Sprint(i))
	}
	held, err := br.addresses.owners()
	if err != nil || len(held) != 1 || held[kept] != "kept" {
		t.Fatalf("held %v, %v", held, err)
	}
	nettest.In(t, host, func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			if name := l.Attrs().Name; strings.HasPrefix(name, "pr") && name != br.identity.portName("kept") {
				t.Errorf("link %s is left", name)
			}
		}
		return err
	})
	nettest.Teardown(t, host, br, "kept")
	nettest.Bare(t, host, run)
}

// TestFiftyAtOnce: two Bridges of one run directory, as in two processes, set up 50 pods
// concurrently.
func TestFiftyAtOnce(t *testing.T) {
	host := nettest.NewNS(t)
	run := t.TempDir()
	bridges := []*Bridge{newBridge(t, run), newBridge(t, run)}
	var mu sync.Mutex
	given := map[netip.Addr]int{}
	var wg sync.WaitGroup
	for i := range 50 {
		pod := nettest.NewNS(t)
		wg.Go(func() {
			addr, err := nettest.Setup(host, bridges[i%2], fmt.Sprint(i), pod)
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
			if err := nettest.Try(host, func() error { return bridges[(i+1)%2].Teardown(context.Background(), fmt.Sprint(i)) }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	nettest.Bare(t, host, run)
}

func BenchmarkSetup(b *testing.B) {
	host, stays, pod := nettest.NewNS(b), nettest.NewNS(b), nettest.NewNS(b)
	br := newBridge(b, b.TempDir())
	nettest.MustSetup(b, host, br, "kept", stays)
	nettest.In(b, host, func() error {
		for b.Loop() {
			if _, err := br.Setup(context.Background(), "x", nettest.Path(pod), nettest.NoPorts); err != nil {
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
	nettest.Teardown(b, host, br, "kept")
}

func BenchmarkTeardown(b *testing.B) {
	host, stays, pod := nettest.NewNS(b), nettest.NewNS(b), nettest.NewNS(b)
	br := newBridge(b, b.TempDir())
	nettest.MustSetup(b, host, br, "kept", stays)
	nettest.In(b, host, func() error {
		for b.Loop() {
			b.StopTimer()
			if _, err := br.Setup(context.Background(), "x", nettest.Path(pod), nettest.NoPorts); err != nil {
				return err
			}
			b.StartTimer()
			if err := br.Teardown(context.Background(), "x"); err != nil {
				return err
			}
		}
		return nil
	})
	nettest.Teardown(b, host, br, "kept")
}

func newBridge(t testing.TB, run string) *Bridge {
	t.Helper()
	return New(Options{Dirs: layout.Dirs{Run: run}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
}

// mustSetupPod is nettest.SetupPod without errors.
func mustSetupPod(
	t testing.TB, host netns.NsHandle, b *Bridge, id string, ns netns.NsHandle, p *v1.Pod,
) netip.Addr {
	t.Helper()
	addr, err := nettest.SetupPod(host, b, id, ns, p)
	if err != nil {
		t.Fatal(err)
	}
	return addr
}
