// Package netdev reads and changes network devices by netlink, as podrun's bridge, CNI and the
// machine's own address need it: lists that other programs change while they are read, the default
// route, bandwidth limits, network namespaces, forwarding and what links accept of routers.
//
// It owns no device. It does not create or remove any, and knows neither pods nor their addresses.
//
// Start reading at Dump, DefaultRoute and InNamespace.
package netdev

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// PodLink is the name of a pod's link in its network namespace.
	PodLink = "eth0"
	// Bridge begins the names of podrun's own bridges: podrun0, and podrun-HASH for other run directories.
	Bridge = "podrun"
	// widestMTU is the Ethernet MTU, which every link accepts.
	widestMTU = 1500
	// Loopback is the link index of lo in every network namespace.
	Loopback = 1
)

// mostDumps is how often a list is requested from the kernel that changed while it was dumped.
const mostDumps = 20

// Dump returns a list of the kernel's. If the list changes during each of 20 requests, as on a
// machine where links and addresses come and go all the time, Dump returns the last result, in
// which an entry may be missing.
func Dump[T any](list func() ([]T, error)) ([]T, error) {
	for try := 1; ; try++ {
		all, err := list()
		switch {
		case !errors.Is(err, netlink.ErrDumpInterrupted):
			return all, err
		case try == mostDumps:
			return all, nil
		}
	}
}

// IsNotFound reports whether err says that a link does not exist.
func IsNotFound(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing)
}

// DefaultRoute returns the link of the best default route of the main table, and the source address
// if the route names one. The link is nil if there is no default route. One over podrun's own bridge, which a DHCP
// client may have added there, leads nowhere and is ignored.
func DefaultRoute(h *netlink.Handle, family int) (netlink.Link, netip.Addr, error) {
	routes, err := Dump(func() ([]netlink.Route, error) { return h.RouteList(nil, family) })
	if err != nil {
		return nil, netip.Addr{}, fmt.Errorf("listing routes: %w", err)
	}
	for ignored := map[int]bool{}; ; {
		best := bestDefault(routes, ignored)
		if best == nil {
			return nil, netip.Addr{}, nil
		}
		link, err := h.LinkByIndex(linkOf(*best))
		if err != nil {
			return nil, netip.Addr{}, fmt.Errorf("finding the default route's link: %w", err)
		}
		if isBridge(link) {
			ignored[link.Attrs().Index] = true
			continue
		}
		source, _ := netip.AddrFromSlice(best.Src)
		return link, source.Unmap(), nil
	}
}

// bestDefault returns the best default route that is not over one of the ignored links; nil if there is none.
func bestDefault(routes []netlink.Route, ignored map[int]bool) (best *netlink.Route) {
	for i, r := range routes {
		if r.Dst != nil {
			if bits, _ := r.Dst.Mask.Size(); bits != 0 {
				continue
			}
		}
		if r.Type == unix.RTN_UNICAST && !ignored[linkOf(r)] && (best == nil || r.Priority < best.Priority) {
			best = &routes[i]
		}
	}
	return best
}

// isBridge reports that a link is podrun's own bridge, or that of a podrun with another run directory.
func isBridge(link netlink.Link) bool {
	name := link.Attrs().Name
	return link.Type() == "bridge" && (name == Bridge+"0" || strings.HasPrefix(name, Bridge+"-"))
}

// linkOf returns the index of the link of a route, or of its first hop.
func linkOf(r netlink.Route) int {
	if r.LinkIndex == 0 && len(r.MultiPath) > 0 {
		return r.MultiPath[0].LinkIndex
	}
	return r.LinkIndex
}

// anywhere6 is an address of the internet that is nobody's, so that no route leads to it but those to all addresses.
var anywhere6 = netip.MustParseAddr("2000::1")

// HasIPv6 reports whether the machine has a default route for IPv6, and IPv6 is enabled on the link of that name and in
// new network namespaces.
func HasIPv6(outside *netlink.Handle, name string) bool {
	for _, name := range []string{"all", "default", name} {
		b, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + name + "/disable_ipv6")
		if err != nil || len(b) == 0 || b[0] != '0' {
			return false
		}
	}
	// Asked first, because each pod that starts asks, and there may be very many routes.
	if _, err := outside.RouteGet(anywhere6.AsSlice()); err != nil {
		return false
	}
	link, _, err := DefaultRoute(outside, netlink.FAMILY_V6)
	return err == nil && link != nil
}

// UplinkMTU returns the MTU of the link of the family's default route, at most widestMTU, so that pods'
// packets are not fragmented.
func UplinkMTU(outside *netlink.Handle, family int) int {
	link, _, err := DefaultRoute(outside, family)
	if err != nil || link == nil {
		return widestMTU
	}
	return min(link.Attrs().MTU, widestMTU)
}
