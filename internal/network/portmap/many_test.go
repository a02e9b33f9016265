package portmap

import (
	"log/slog"
	"net/netip"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/network/nettest"
	"podrun.io/podrun/internal/network/nft"
	"podrun.io/podrun/internal/network/records"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/test"
)

var recorded = records.Record{
	Bridge: "podrun-test", Boot: "boot",
	Subnet: netip.MustParsePrefix("10.64.0.0/20"), Subnet6: netip.MustParsePrefix("fd00::/64"),
}

// newMachine returns a machine with a bridge, and its host ports.
func newMachine(t *testing.T) (netns.NsHandle, *Ports, *test.Buffer) {
	t.Helper()
	host, log := nettest.NewNS(t), &test.Buffer{}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = recorded.Bridge
	nettest.In(t, host, func() error { return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}) })
	dir := &records.Dir{
		Path: t.TempDir(), Boot: func() (string, error) { return recorded.Boot, nil },
		Log: slog.New(slog.NewTextHandler(log, nil)),
	}
	test.Must(t, dir.Save(recorded))
	return host, New(dir), log
}

func recordWith(name string, last byte, ports ...pod.HostPort) Record {
	addr6 := recorded.Subnet6.Addr().As16()
	addr6[15] = last
	return Record{
		Pod: "default/" + name, UID: name, Addr: netip.AddrFrom4([4]byte{10, 64, 0, last}), Addr6: netip.AddrFrom16(addr6),
		Ports: ports,
	}
}

// TestManyPorts: the kernel gets each of many ports, when their pod starts, and when all are written anew.
func TestManyPorts(t *testing.T) {
	const many = 3000
	host, ports, _ := newMachine(t)
	var all []pod.HostPort
	for i := range many {
		all = append(all, pod.HostPort{Protocol: v1.ProtocolTCP, Port: uint16(10000 + i), ContainerPort: 80})
		all = append(all, pod.HostPort{Protocol: v1.ProtocolTCP, HostIP: "192.0.2.2", Port: uint16(20000 + i), ContainerPort: 80})
	}
	count := func(f nft.Family, set string) (n int) {
		t.Helper()
		nettest.In(t, host, func() error {
			c, err := nft.New()
			if err != nil {
				return err
			}
			table := &nftables.Table{Family: f.Table, Name: Table(recorded.Bridge)}
			elements, err := c.GetSetElements(&nftables.Set{Table: table, Name: set})
			n = len(elements)
			return err
		})
		return n
	}
	expect := func(when string, want int) {
		t.Helper()
		for _, f := range nft.Families() {
			if got := count(f, allPorts); got != want {
				t.Errorf("%s: family %d has %d ports, want %d", when, f.Number, got, want)
			}
		}
		if got := count(nft.FamilyOf(netip.IPv4Unspecified()), onePorts); got != many {
			t.Errorf("%s: %d ports at one address, want %d", when, got, many)
		}
	}
	nettest.In(t, host, func() error {
		return ports.Reserve("one", recordWith("one", 2, pod.HostPort{Protocol: v1.ProtocolTCP, Port: 80, ContainerPort: 80}))
	})
	nettest.In(t, host, func() error { return ports.Reserve("many", recordWith("many", 3, all...)) })
	expect("added", many+1)
	nettest.In(t, host, func() error { return ports.Release("one") })
	expect("after a release", many)
	nettest.In(t, host, ports.Repair)
	expect("written anew", many)
}
