package bridge

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/network/netdev"
	"podrun.io/podrun/internal/network/records"
)

const (
	subnetBits = 20
	// leastMTU6 is the MTU that IPv6 needs: the kernel gives no link with less an IPv6 address.
	leastMTU6 = 1280
)

// ranges returns the private address ranges that a subnet is chosen from, starting with the one
// that other software uses least.
func ranges() []netip.Prefix {
	return append([]netip.Prefix{netip.MustParsePrefix("10.64.0.0/10")}, private()[1:]...)
}

// private returns the blocks of private addresses that ranges are of.
func private() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("172.16.0.0/12"),
		netip.MustParsePrefix("192.168.0.0/16"),
		netip.MustParsePrefix("100.64.0.0/10"),
	}
}

// choose returns a record with name, subnet and MTU for a network whose bridge does not exist. It
// keeps what rec has where possible, because the allocated addresses are of its subnet.
func choose(outside *netlink.Handle, rec records.Record, run, boot string) (records.Record, error) {
	taken, err := usedPrefixes(outside)
	if err != nil {
		return rec, err
	}
	subnet := rec.Subnet
	if !subnet.IsValid() || overlaps(subnet, taken) {
		if subnet, err = freeSubnet(run, taken); err != nil {
			return rec, err
		}
	}
	name := rec.Bridge
	if name == "" {
		if name, err = freeName(outside, run); err != nil {
			return rec, err
		}
	}
	chosen := records.Record{
		Bridge: name, Subnet: subnet, Subnet6: rec.Subnet6, Boot: boot, MTU: netdev.UplinkMTU(outside, unix.AF_INET),
	}
	if chosen.MTU < leastMTU6 {
		chosen.Subnet6 = netip.Prefix{}
	}
	if chosen = withIPv6(outside, chosen, run, "default"); chosen.Subnet6.IsValid() {
		chosen.MTU = min(chosen.MTU, netdev.UplinkMTU(outside, unix.AF_INET6)) // IPv6 is on no link with too little
	}
	return chosen, nil
}

// withIPv6 returns rec with an IPv6 subnet, if the machine has IPv6 and the bridge can have it: link is the
// bridge, or "default" before it exists. A bridge has one MTU: where IPv4's default route needs one that
// IPv6 does not allow, as through a tunnel, pods have no IPv6. With a wider one, their IPv4 connections
// would depend on ICMP from other machines.
func withIPv6(outside *netlink.Handle, rec records.Record, run, link string) records.Record {
	if !rec.Subnet6.IsValid() && rec.MTU >= leastMTU6 && netdev.HasIPv6(outside, link) {
		rec.Subnet6 = subnet6(run, rec.Boot)
	}
	return rec
}

// gainIPv6 gives a bridge the addresses that it lacks, and an IPv6 subnet if the machine has got IPv6 since the bridge
// was made, as when routers advertise late at boot. Pods have IPv6 if they start from then on, or had it before the
// bridge lost it. The caller holds the lock.
func (b *Bridge) gainIPv6(outside *netlink.Handle, rec records.Record, link netlink.Link) (records.Record, error) {
	had := rec.Subnet6
	rec, err := keeper{b}.address(outside, rec, link)
	if err == nil && rec.Subnet6 != had {
		err = b.ports.Repair() // without those by IPv6
	}
	if err != nil {
		return rec, err
	}
	gained := withIPv6(outside, rec, b.identity.run, rec.Bridge)
	if gained == rec {
		return rec, nil
	}
	// Recorded last: a process that is killed before leaves it to the next one.
	if gained, err = b.complete(outside, gained, link); err != nil {
		return rec, fmt.Errorf("giving it IPv6: %w", err)
	}
	if err := b.records.Save(gained); err != nil {
		return rec, err
	}
	return gained, b.ports.Repair()
}

// address gives the bridge those of its addresses that it lacks. If it cannot have IPv6's, as where an administrator
// has disabled IPv6, the network goes on without it, and the record that address saves and returns has none.
func (k keeper) address(outside *netlink.Handle, rec records.Record, link netlink.Link) (records.Record, error) {
	for _, subnet := range rec.Subnets() {
		gateway := &netlink.Addr{IPNet: ipNet(gatewayOf(subnet), subnet.Bits()), Flags: noDADFlag(subnet.Addr())}
		err := outside.AddrAdd(link, gateway)
		if err == nil || errors.Is(err, unix.EEXIST) {
			continue
		}
		if subnet != rec.Subnet6 {
			return rec, fmt.Errorf("giving it %s: %w", gateway.IPNet, err)
		}
		k.log.Warn("the bridge cannot have its IPv6 address: pods that start now have IPv4 alone",
			"address", gateway.IPNet, "err", err)
		rec.Subnet6 = netip.Prefix{}
		return rec, k.records.Save(rec)
	}
	return rec, nil
}

// subnet6 returns a subnet of the unique local addresses (RFC 4193) that no other network has: its
// identifier is a hash of the machine's boot ID and the run directory.
func subnet6(run, boot string) netip.Prefix {
	sum := sha256.Sum256([]byte(run + "\x00" + boot))
	base := [16]byte{0: 0xfd}
	copy(base[1:6], sum[:])
	return netip.PrefixFrom(netip.AddrFrom16(base), 64)
}

// counterpart returns the address with the same offset in subnet6 as addr has in subnet.
func counterpart(addr netip.Addr, subnet6, subnet netip.Prefix) netip.Addr {
	base, in, first := subnet6.Addr().As16(), addr.As4(), subnet.Masked().Addr().As4()
	binary.BigEndian.PutUint32(base[12:], binary.BigEndian.Uint32(in[:])-binary.BigEndian.Uint32(first[:]))
	return netip.AddrFrom16(base)
}

// freeName returns an unused link name for the bridge: podrun0 for the default run directory, else
// one with the run directory's hash. An existing link of that name belongs to other software, such
// as a podrun in a container with the host's network.
func freeName(outside *netlink.Handle, run string) (string, error) {
	sum := sha256.Sum256([]byte(run))
	names := []string{}
	if run == "/run/podrun" {
		names = append(names, "podrun0")
	}
	for i := 0; i+3 <= len(sum); i += 3 {
		names = append(names, "podrun-"+hex.EncodeToString(sum[i:i+3]))
	}
	for _, name := range names {
		_, err := outside.LinkByName(name)
		if netdev.IsNotFound(err) {
			return name, nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("links %s to %s are all taken", names[0], names[len(names)-1])
}

// freeSubnet returns the first subnet that overlaps no prefix of taken. The search starts at an
// offset that depends on the run directory, so that two podruns that choose at the same time choose
// differently.
func freeSubnet(run string, taken []netip.Prefix) (netip.Prefix, error) {
	sum := sha256.Sum256([]byte(run))
	start := binary.BigEndian.Uint32(sum[:4])
	for _, r := range ranges() {
		count := uint32(1) << (subnetBits - r.Bits())
		for i := range count {
			subnet := nthSubnet(r, (start+i)%count)
			if !overlaps(subnet, taken) {
				return subnet, nil
			}
		}
	}
	return netip.Prefix{}, fmt.Errorf("no free private subnet: this machine has routes to all of %v", ranges())
}

func nthSubnet(r netip.Prefix, n uint32) netip.Prefix {
	base := r.Addr().As4()
	first := binary.BigEndian.Uint32(base[:]) + n<<(32-subnetBits)
	return netip.PrefixFrom(addrOf(first), subnetBits)
}

func overlaps(p netip.Prefix, taken []netip.Prefix) bool {
	return slices.ContainsFunc(taken, p.Overlaps)
}

// usedPrefixes returns the networks of the host's IPv4 addresses and its routes to private networks, of
// all tables. A route that also leads to public addresses is a default route or a part of one, such as
// 0.0.0.0/1, with which VPNs take precedence over the default route: it says nothing about the private
// networks in it, and the bridge's own route precedes it.
func usedPrefixes(outside *netlink.Handle) ([]netip.Prefix, error) {
	addrs, err := netdev.Dump(func() ([]netlink.Addr, error) { return outside.AddrList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return nil, fmt.Errorf("listing addresses: %w", err)
	}
	all := &netlink.Route{Table: unix.RT_TABLE_UNSPEC}
	routes, err := netdev.Dump(func() ([]netlink.Route, error) {
		return outside.RouteListFiltered(netlink.FAMILY_V4, all, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("listing routes: %w", err)
	}
	var taken []netip.Prefix
	for _, a := range addrs {
		if network := prefixOf(a.IPNet); network.Bits() > 0 {
			taken = append(taken, network)
		}
	}
	for _, r := range routes {
		network := prefixOf(r.Dst)
		if slices.ContainsFunc(private(), func(block netip.Prefix) bool {
			return block.Bits() <= network.Bits() && block.Contains(network.Addr())
		}) {
			taken = append(taken, network)
		}
	}
	return taken, nil
}

// prefixOf returns the zero Prefix for nil, which is how netlink may give the default route.
func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	addr, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), bits).Masked()
}

// gatewayOf returns the bridge's own address, the first of the subnet.
func gatewayOf(subnet netip.Prefix) netip.Addr { return subnet.Masked().Addr().Next() }

func addrOf(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}
