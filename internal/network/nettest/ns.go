// Package nettest has what the tests of the packages below internal/network share: machines and
// pods that are network namespaces, and the traffic between them.
//
// It knows no package of the network: its helpers connect pods by whatever implements Network.
// Start reading at NewNS and Setup.
package nettest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	v1 "k8s.io/api/core/v1"
)

// NewNS returns a fresh network namespace with lo up.
func NewNS(t testing.TB) netns.NsHandle {
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
	In(t, m.ns, func() error {
		return netlink.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: 1}})
	})
	return m.ns
}

// Try runs f in a namespace.
func Try(ns netns.NsHandle, f func() error) error {
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

// In runs f in a namespace, as Try does. An error ends the test.
func In(t testing.TB, ns netns.NsHandle, f func() error) {
	t.Helper()
	if err := Try(ns, f); err != nil {
		t.Fatal(err)
	}
}

// NoPorts is a pod without host ports.
var NoPorts = &v1.Pod{}

// Path returns a path by which ns can be opened.
func Path(ns netns.NsHandle) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(ns)) }

// Network is what the helpers need of a bridge or a network.
type Network interface {
	Setup(ctx context.Context, id, netns string, p *v1.Pod) ([]netip.Addr, error)
	Teardown(ctx context.Context, id string) error
}

// Setup connects a pod without host ports and returns its IPv4 address.
func Setup(host netns.NsHandle, b Network, id string, pod netns.NsHandle) (addr netip.Addr, err error) {
	err = Try(host, func() error {
		addrs, err := b.Setup(context.Background(), id, Path(pod), NoPorts)
		if err == nil {
			addr = addrs[0]
		}
		return err
	})
	return addr, err
}

// MustSetup is Setup; an error ends the test.
func MustSetup(t testing.TB, host netns.NsHandle, b Network, id string, pod netns.NsHandle) netip.Addr {
	t.Helper()
	addr, err := Setup(host, b, id, pod)
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// Teardown releases what a pod has.
func Teardown(t testing.TB, host netns.NsHandle, b Network, id string) {
	t.Helper()
	In(t, host, func() error { return b.Teardown(context.Background(), id) })
}

// Bare checks that nothing of podrun's is left in the host namespace and the run directory.
func Bare(t testing.TB, host netns.NsHandle, run string) {
	t.Helper()
	In(t, host, func() error {
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

// Talk sends a line by TCP from one namespace to a listener in another and returns who the listener saw.
func Talk(t *testing.T, from, to netns.NsHandle, addr string) netip.Addr {
	t.Helper()
	var l net.Listener
	In(t, to, func() (err error) {
		l, err = net.Listen("tcp4", net.JoinHostPort(addr, "0"))
		return err
	})
	defer l.Close()
	var out net.Conn
	In(t, from, func() (err error) {
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

// JoinOutside connects the host namespace with another machine, which knows no way to the pods.
func JoinOutside(t *testing.T, host, outside netns.NsHandle) {
	t.Helper()
	In(t, host, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = "up0", 1400
		veth := netlink.NewVeth(attrs)
		veth.PeerName, veth.PeerNamespace = "up0", netlink.NsFd(int(outside))
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		if err := netlink.AddrAdd(veth, &netlink.Addr{IPNet: parse(t, "192.0.2.2/24")}); err != nil {
			return err
		}
		if err := netlink.LinkSetUp(veth); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{
			LinkIndex: veth.Index, Dst: parse(t, "0.0.0.0/0"), Gw: net.IPv4(192, 0, 2, 1),
		})
	})
	In(t, outside, func() error {
		link, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: parse(t, "192.0.2.1/24")}); err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	})
}

func parse(t *testing.T, text string) *net.IPNet {
	t.Helper()
	n, err := netlink.ParseIPNet(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
