package netdev

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Private returns the blocks of private addresses that ranges are of.
func Private() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("172.16.0.0/12"),
		netip.MustParsePrefix("192.168.0.0/16"),
		netip.MustParsePrefix("100.64.0.0/10"),
	}
}

// UsedPrefixes returns the networks of the host's IPv4 addresses and its routes to private networks, of
// all tables. A route that also leads to public addresses is a default route or a part of one, such as
// 0.0.0.0/1, with which VPNs take precedence over the default route: it says nothing about the private
// networks in it, and the bridge's own route precedes it.
func UsedPrefixes(outside *netlink.Handle) ([]netip.Prefix, error) {
	addrs, err := Dump(func() ([]netlink.Addr, error) { return outside.AddrList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return nil, fmt.Errorf("listing addresses: %w", err)
	}
	all := &netlink.Route{Table: unix.RT_TABLE_UNSPEC}
	routes, err := Dump(func() ([]netlink.Route, error) {
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
		if slices.ContainsFunc(Private(), func(block netip.Prefix) bool {
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
