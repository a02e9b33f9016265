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

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// PodLink is the name of a pod's link in its network namespace.
	PodLink = "eth0"
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
// if the route names one. The link is nil if there is no default route.
func DefaultRoute(h *netlink.Handle, family int) (netlink.Link, netip.Addr, error) {
	routes, err := Dump(func() ([]netlink.Route, error) { return h.RouteList(nil, family) })
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
