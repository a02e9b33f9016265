package network

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/network/netdev"
)

// HostIP returns the machine's own address: the default route's source, else the first global
// address of the default route's link, else of any link but bridges that lead to containers and
// virtual machines only, such as podrun's and docker0. IPv4 comes before IPv6.
func HostIP() (netip.Addr, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("finding the host's address: %w", err)
	}
	defer h.Close()
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		link, source, err := netdev.DefaultRoute(h, family)
		if err != nil {
			return netip.Addr{}, fmt.Errorf("finding the host's address: %w", err)
		}
		if source.IsValid() {
			return source, nil
		}
		if link == nil {
			continue
		}
		if addr, err := firstAddress(h, link, family); err != nil || addr.IsValid() {
			return addr, err
		}
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		if addr, err := firstAddress(h, nil, family); err != nil || addr.IsValid() {
			return addr, err
		}
	}
	return netip.Addr{}, errNoAddress
}

var errNoAddress = errors.New("finding the host's address: it has none but loopback")

// firstAddress returns the first global address of link, or, if link is nil, of any link that leads out of the machine.
// The zero Addr means none.
func firstAddress(h *netlink.Handle, link netlink.Link, family int) (netip.Addr, error) {
	addrs, err := netdev.Dump(func() ([]netlink.Addr, error) { return h.AddrList(link, family) })
	if err != nil {
		return netip.Addr{}, fmt.Errorf("listing addresses: %w", err)
	}
	var leadsOut map[int]bool
	if link == nil {
		if leadsOut, err = linksOut(h); err != nil {
			return netip.Addr{}, err
		}
	}
	for _, a := range addrs {
		if !a.IP.IsGlobalUnicast() || a.Scope != unix.RT_SCOPE_UNIVERSE || link == nil && !leadsOut[a.LinkIndex] {
			continue
		}
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			return addr.Unmap(), nil
		}
	}
	return netip.Addr{}, nil
}

// linksOut returns the indexes of the links that may lead out of the machine: all but bridges whose ports, if they have
// any, are those of containers and virtual machines. An IPv6 address has no label that could say whose it is.
func linksOut(h *netlink.Handle) (map[int]bool, error) {
	links, err := netdev.Dump(h.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing links: %w", err)
	}
	leadsOut := make(map[int]bool)
	for _, l := range links {
		switch l.Type() {
		case "bridge":
		case "veth", "tuntap":
			leadsOut[l.Attrs().Index] = true // a container's own uplink is one
		default:
			leadsOut[l.Attrs().Index], leadsOut[l.Attrs().MasterIndex] = true, true
		}
	}
	return leadsOut, nil
}
