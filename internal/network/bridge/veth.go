package bridge

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/network/netdev"
	"podrun.io/podrun/internal/pod"
)

// port is a pod's port of the bridge: the host's end of its veth pair, and what the pod's end gets.
type port struct {
	name   string // name of the link on the host's side
	bridge int    // link index of the bridge
	mtu    int
	addr   netip.Addr
	subnet netip.Prefix
	// addr6 and subnet6 are set if the network has IPv6.
	addr6   netip.Addr
	subnet6 netip.Prefix
	limits  pod.Bandwidth
}

// addresses returns the pod's addresses, IPv4 first.
func (p port) addresses() []netip.Addr {
	if !p.addr6.IsValid() {
		return []netip.Addr{p.addr}
	}
	return []netip.Addr{p.addr, p.addr6}
}

// connect connects the namespace at path to the bridge.
func connect(outside *netlink.Handle, p port, path string) error {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	defer ns.Close()
	inside, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("entering %s: %w", path, err)
	}
	defer inside.Close()
	if err := inside.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: netdev.Loopback}}); err != nil {
		return fmt.Errorf("setting lo up: %w", err)
	}
	if err := addPort(outside, p, ns); err != nil {
		return fmt.Errorf("making the pod's link: %w", hint(err)) // its name is derived from the sandbox's ID
	}
	if err := netdev.InNamespace(path, func() error {
		return errors.Join(netdev.IgnoreRouterAdvertisements(netdev.PodLink), netdev.DisableDAD(netdev.PodLink))
	}); err != nil {
		return err
	}
	if err := configure(inside, p); err != nil {
		return fmt.Errorf("configuring %s: %w", netdev.PodLink, err)
	}
	return nil
}

// addPort creates the veth pair. It removes an existing link of the same name, which can only be
// left from an interrupted Setup.
func addPort(outside *netlink.Handle, p port, ns netns.NsHandle) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.MasterIndex, attrs.Flags = p.name, p.mtu, p.bridge, net.FlagUp
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerNamespace, veth.PeerMTU = netdev.PodLink, netlink.NsFd(int(ns)), uint32(p.mtu)
	veth.HardwareAddr, veth.PeerHardwareAddr = macOf(portPrefix, p.addr), macOf(podPrefix, p.addr)
	err := outside.LinkAdd(veth)
	if errors.Is(err, unix.EEXIST) {
		if err := removeLink(outside, p.name); err != nil {
			return err
		}
		err = outside.LinkAdd(veth)
	}
	if err != nil {
		return err
	}
	if err := netdev.LimitRate(outside, veth, p.limits.Ingress); err != nil {
		return fmt.Errorf("limiting the pod's ingress bandwidth: %w", err)
	}
	if err := netdev.IgnoreRouterAdvertisements(p.name); err != nil {
		return err
	}
	if err := pin(outside, veth, p.addr); err != nil {
		return err
	}
	// A pod may connect to itself by an address that is translated to its own.
	return outside.LinkSetHairpin(veth, true)
}

// configure gives the pod's end its addresses, its egress limit and the default routes.
func configure(inside *netlink.Handle, p port) error {
	link, err := inside.LinkByName(netdev.PodLink)
	if err != nil {
		return err
	}
	if err := netdev.LimitRate(inside, link, p.limits.Egress); err != nil {
		return fmt.Errorf("limiting the pod's egress bandwidth: %w", err)
	}
	if err := inside.AddrAdd(link, &netlink.Addr{IPNet: ipNet(p.addr, p.subnet.Bits())}); err != nil {
		return err
	}
	if p.addr6.IsValid() {
		addr := &netlink.Addr{IPNet: ipNet(p.addr6, p.subnet6.Bits()), Flags: noDADFlag(p.addr6)}
		if err := inside.AddrAdd(link, addr); err != nil {
			return err
		}
	}
	if err := inside.LinkSetUp(link); err != nil {
		return err
	}
	if err := addDefaultRoute(inside, link, netip.IPv4Unspecified(), p.subnet); err != nil || !p.addr6.IsValid() {
		return err
	}
	return addDefaultRoute(inside, link, netip.IPv6Unspecified(), p.subnet6)
}

func addDefaultRoute(inside *netlink.Handle, link netlink.Link, all netip.Addr, subnet netip.Prefix) error {
	return inside.RouteAdd(&netlink.Route{
		LinkIndex: link.Attrs().Index,
		Dst:       ipNet(all, 0),
		Gw:        gatewayOf(subnet).AsSlice(),
	})
}

// noDADFlag returns the flag that makes an IPv6 address usable at once. No other node can have
// the address, so the kernel need not spend a second on duplicate address detection.
func noDADFlag(addr netip.Addr) int {
	if addr.Is6() {
		return unix.IFA_F_NODAD
	}
	return 0
}

// removeLink removes a link. It is no error if the link does not exist.
func removeLink(outside *netlink.Handle, name string) error {
	link, err := outside.LinkByName(name)
	if netdev.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing link %s: %w", name, err)
	}
	return deleteLink(outside, link)
}

// deleteLink is removeLink for a link that was there.
func deleteLink(outside *netlink.Handle, link netlink.Link) error {
	// The kernel may remove it meanwhile, with the pod's end.
	if err := outside.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("removing link %s: %w", link.Attrs().Name, err)
	}
	return nil
}

func ipNet(addr netip.Addr, bits int) *net.IPNet {
	return &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(bits, addr.BitLen())}
}
