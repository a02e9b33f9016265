package network

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// HostIP returns the machine's own address: the default route's source, else the first global
// address of the default route's link, else of any link but podrun's bridges. IPv4 comes before
// IPv6.
func HostIP() (netip.Addr, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("finding the host's address: %w", err)
	}
	defer h.Close()
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		link, source, err := defaultRoute(h, family)
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
	return netip.Addr{}, errors.New("finding the host's address: it has none but loopback")
}

// defaultRoute returns the link of the best default route of the main table, and the source address
// if the route names one. The link is nil if there is no default route.
func defaultRoute(h *netlink.Handle, family int) (netlink.Link, netip.Addr, error) {
	routes, err := dump(func() ([]netlink.Route, error) { return h.RouteList(nil, family) })
	if err != nil {
		return nil, netip.Addr{}, fmt.Errorf("listing routes: %w", err)
	}
	var best *netlink.Route
	for i, r := range routes {
		if r.Dst != nil {
			if bits, _ := r.Dst.Mask.Size(); bits != 0 {
				continue
			}
		}
		if r.Type == unix.RTN_UNICAST && (best == nil || r.Priority < best.Priority) {
			best = &routes[i]
		}
	}
	if best == nil {
		return nil, netip.Addr{}, nil
	}
	index := best.LinkIndex
	if index == 0 && len(best.MultiPath) > 0 {
		index = best.MultiPath[0].LinkIndex
	}
	link, err := h.LinkByIndex(index)
	if err != nil {
		return nil, netip.Addr{}, fmt.Errorf("finding the default route's link: %w", err)
	}
	source, _ := netip.AddrFromSlice(best.Src)
	return link, source.Unmap(), nil
}

// firstAddress returns the first global address of link, or, if link is nil, of any link but
// podrun's bridges. The zero Addr means none.
func firstAddress(h *netlink.Handle, link netlink.Link, family int) (netip.Addr, error) {
	addrs, err := dump(func() ([]netlink.Addr, error) { return h.AddrList(link, family) })
	if err != nil {
		return netip.Addr{}, fmt.Errorf("listing addresses: %w", err)
	}
	for _, a := range addrs {
		if !a.IP.IsGlobalUnicast() || a.Scope != unix.RT_SCOPE_UNIVERSE || isOurs(a.Label) {
			continue
		}
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			return addr.Unmap(), nil
		}
	}
	return netip.Addr{}, nil
}

// isOurs reports whether link is a podrun bridge, of any run directory. It compares the name.
func isOurs(link string) bool { return strings.HasPrefix(link, "podrun") }
