package bridge

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/network/netdev"
	"podrun.io/podrun/internal/network/nettest"
	"podrun.io/podrun/internal/network/records"
)

func TestFull(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	b := newBridge(t, t.TempDir())
	if err := os.MkdirAll(b.records.Path, 0o700); err != nil {
		t.Fatal(err)
	}
	rec := records.Record{Subnet: netip.MustParsePrefix("10.64.0.0/29")}
	var got []string
	for i := range 5 {
		addr, err := b.addresses.allocate(rec, fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, addr.String())
	}
	if want := "10.64.0.2 10.64.0.3 10.64.0.4 10.64.0.5 10.64.0.6"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if addr, err := b.addresses.allocate(rec, "3"); err != nil || addr.String() != "10.64.0.5" {
		t.Errorf("the same id again: %s, %v", addr, err)
	}
	if _, err := b.addresses.allocate(rec, "more"); err == nil || !strings.Contains(err.Error(), "all 5 are taken") {
		t.Errorf("error %v", err)
	}
	if err := b.addresses.release("1"); err != nil {
		t.Fatal(err)
	}
	if addr, err := b.addresses.allocate(rec, "more"); err != nil || addr.String() != "10.64.0.3" {
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

// TestAvoidsHostRoutes: a subnet that the host uses is not chosen, nor one to which it has a route that leads nowhere,
// and the choice is kept.
func TestAvoidsHostRoutes(t *testing.T) {
	for name, route := range map[string]netlink.Route{
		"another table": {LinkIndex: netdev.Loopback, Scope: unix.RT_SCOPE_LINK, Table: 77},
		"unreachable":   {Type: unix.RTN_UNREACHABLE, Priority: 9999},
	} {
		t.Run(name, func(t *testing.T) {
			host, pod := nettest.NewNS(t), nettest.NewNS(t)
			run := t.TempDir()
			br := newBridge(t, run)
			would, err := freeSubnet(br.identity.run, nil)
			if err != nil {
				t.Fatal(err)
			}
			route.Dst = ipNet(would.Addr(), 22)
			nettest.In(t, host, func() error { return netlink.RouteAdd(&route) })
			addr := nettest.MustSetup(t, host, br, "x", pod)
			if would.Contains(addr) {
				t.Errorf("%s is in %s, which the host uses", addr, would)
			}
			nettest.Teardown(t, host, br, "x")
		})
	}
}

// TestHalfDefaults: routes with which a VPN takes precedence over the default route keep no pod from starting. A
// private network's route that is wider than a range for pods still counts.
func TestHalfDefaults(t *testing.T) {
	for _, dsts := range [][]string{{"0.0.0.0/1", "128.0.0.0/1"}, {"0.0.0.0/5", "8.0.0.0/7", "96.0.0.0/4", "172.0.0.0/9", "192.128.0.0/9"}} {
		host, outside := nettest.NewNS(t), nettest.NewNS(t)
		nettest.JoinOutside(t, host, outside)
		for _, dst := range append(dsts, "10.0.0.0/8") {
			command(t, host, "ip route add "+dst+" via 192.0.2.1")
		}
		pod := nettest.NewNS(t)
		addr := nettest.MustSetup(t, host, newBridge(t, t.TempDir()), "a", pod)
		if !netip.MustParsePrefix("172.16.0.0/12").Contains(addr) {
			t.Errorf("%s", addr)
		}
		nettest.Talk(t, pod, outside, "192.0.2.1")
	}
}

func TestNames(t *testing.T) {
	host := nettest.NewNS(t)
	nettest.In(t, host, func() error {
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
