package network

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/pod"
)

const (
	podLink = "eth0"
	// loopback is the index of lo in every network namespace.
	loopback = 1
)

// port is one pod's end of the bridge.
type port struct {
	name   string // of the link on the host's side
	bridge int    // the bridge's index
	mtu    int
	addr   netip.Addr
	subnet netip.Prefix
	// addr6 and subnet6 are for IPv6, if the network has any.
	addr6   netip.Addr
	subnet6 netip.Prefix
	limits  pod.Bandwidth
}

// addresses are the pod's, IPv4 first.
func (p port) addresses() []netip.Addr {
	if !p.addr6.IsValid() {
		return []netip.Addr{p.addr}
	}
	return []netip.Addr{p.addr, p.addr6}
}

// portName is the host's link of id. The run directory is part of it, because two podruns may run the
// same pod side by side.
func (b *Bridge) portName(id string) string {
	sum := sha256.Sum256([]byte(b.run + "\x00" + id))
	return "pr" + hex.EncodeToString(sum[:5])
}

// connect joins the namespace at path to the bridge.
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
	if err := inside.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: loopback}}); err != nil {
		return fmt.Errorf("setting lo up: %w", err)
	}
	if err := addPort(outside, p, ns); err != nil {
		return fmt.Errorf("making link %s: %w", p.name, hint(err))
	}
	if err := inNamespace(path, func() error { return errors.Join(refuseRouters(podLink), trustAddresses(podLink)) }); err != nil {
		return err
	}
	if err := configure(inside, p); err != nil {
		return fmt.Errorf("configuring %s: %w", podLink, err)
	}
	return nil
}

// addPort makes the pair of links; one of that name can only be what an interrupted Setup left.
func addPort(outside *netlink.Handle, p port, ns netns.NsHandle) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.MasterIndex, attrs.Flags = p.name, p.mtu, p.bridge, net.FlagUp
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerNamespace, veth.PeerMTU = podLink, netlink.NsFd(int(ns)), uint32(p.mtu)
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
	if err := slow(outside, veth, p.limits.Ingress); err != nil {
		return fmt.Errorf("limiting what comes to the pod: %w", err)
	}
	if err := refuseRouters(p.name); err != nil {
		return err
	}
	// A pod may reach itself by an address that is translated to its own.
	return outside.LinkSetHairpin(veth, true)
}

// configure gives the pod's end its address and the default route.
func configure(inside *netlink.Handle, p port) error {
	link, err := inside.LinkByName(podLink)
	if err != nil {
		return err
	}
	if err := slow(inside, link, p.limits.Egress); err != nil {
		return fmt.Errorf("limiting what goes from the pod: %w", err)
	}
	if err := inside.AddrAdd(link, &netlink.Addr{IPNet: ipNet(p.addr, p.subnet.Bits())}); err != nil {
		return err
	}
	if p.addr6.IsValid() {
		addr := &netlink.Addr{IPNet: ipNet(p.addr6, p.subnet6.Bits()), Flags: noDetection(p.addr6)}
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
	return inside.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(all, 0), Gw: gatewayOf(subnet).AsSlice()})
}

// noDetection makes an IPv6 address of use at once: nobody else can have it, so that the kernel need not
// find out for a second.
func noDetection(addr netip.Addr) int {
	if addr.Is6() {
		return unix.IFA_F_NODAD
	}
	return 0
}

// removeLink removes a link; a missing one is success.
func removeLink(outside *netlink.Handle, name string) error {
	link, err := outside.LinkByName(name)
	if isNotFound(err) {
		return nil
	}
	if err == nil {
		err = outside.LinkDel(link)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) { // the pod's end may take it along just now
		return fmt.Errorf("removing link %s: %w", name, err)
	}
	return nil
}

// mostDumps is how often the kernel is asked again for a list that changed while it gave it.
const mostDumps = 20

// dump returns what is on a list of the kernel's. On a machine where links and addresses come and go all the time the
// last try counts, in which one may be missing.
func dump[T any](list func() ([]T, error)) ([]T, error) {
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

func isNotFound(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing)
}

// forward lets the kernel pass packets of addr's family between the bridge and the other links.
func forward(outside *netlink.Handle, addr netip.Addr) error {
	path := "/proc/sys/net/ipv4/ip_forward"
	if addr.Is6() {
		path = "/proc/sys/net/ipv6/conf/all/forwarding"
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if len(b) > 0 && b[0] == '1' {
		return nil
	}
	if addr.Is6() {
		if err := goOnAccepting(outside); err != nil {
			return err
		}
	}
	return os.WriteFile(path, []byte("1"), 0)
}

// goOnAccepting lets the link of the default route get its addresses and routes from a router's
// advertisements (1) although the machine forwards (2): the kernel would take the machine for a router, and
// in time it would have no way out. No other link: pods might advertise themselves.
func goOnAccepting(outside *netlink.Handle) error {
	link, _, err := defaultRoute(outside, netlink.FAMILY_V6)
	if err != nil || link == nil {
		return err
	}
	path := "/proc/sys/net/ipv6/conf/" + link.Attrs().Name + "/accept_ra"
	b, err := os.ReadFile(path)
	if err != nil || len(b) == 0 || b[0] != '1' {
		return err
	}
	return os.WriteFile(path, []byte("2"), 0)
}

// refuseRouters lets a link have no addresses and routes from a router's advertisements, which a pod could send.
func refuseRouters(link string) error {
	return setIPv6(link, "accept_ra", "0")
}

// setIPv6 sets a parameter of a link. Without IPv6, or where the machine's parameters are read-only and are another's
// matter, there is nothing to do.
func setIPv6(link, parameter, value string) error {
	err := os.WriteFile("/proc/sys/net/ipv6/conf/"+link+"/"+parameter, []byte(value), 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.EROFS) {
		return nil
	}
	return err
}

// trustAddresses lets a link take its IPv6 addresses without asking whether they are free: no other pod can have them, and
// one that says so keeps this one from its own.
func trustAddresses(link string) error { return setIPv6(link, "accept_dad", "0") }

func ipNet(addr netip.Addr, bits int) *net.IPNet {
	return &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(bits, addr.BitLen())}
}
