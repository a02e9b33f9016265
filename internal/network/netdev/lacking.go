package netdev

import (
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// forwarding returns the file that says whether the machine forwards packets of addr's family.
func forwarding(addr netip.Addr) string {
	if addr.Is6() {
		return "/proc/sys/net/ipv6/conf/all/forwarding"
	}
	return "/proc/sys/net/ipv4/ip_forward"
}

// Lacking returns what other programs have changed of a link that has routers' addresses: that it is not there, or not
// up, which of the addresses it lacks, and that the machine does not forward packets of their families, which can be
// turned on.
func Lacking(link string, addresses []netip.Addr) ([]string, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening netlink: %w", err)
	}
	defer h.Close()
	is, err := h.LinkByName(link)
	if IsNotFound(err) {
		return []string{"link " + link}, nil
	}
	if err != nil {
		return nil, err
	}
	var lacking []string
	if is.Attrs().Flags&unix.IFF_UP == 0 {
		lacking = append(lacking, "link "+link+" up")
	}
	has, err := Dump(func() ([]netlink.Addr, error) { return h.AddrList(is, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, err
	}
	for _, addr := range addresses {
		if !slices.ContainsFunc(has, func(a netlink.Addr) bool { return a.IP.Equal(addr.AsSlice()) }) {
			lacking = append(lacking, "address "+addr.String())
		}
		path := forwarding(addr)
		b, err := os.ReadFile(path)
		if err == nil && len(b) > 0 && b[0] == '0' && unix.Access(path, unix.W_OK) == nil {
			lacking = append(lacking, path)
		}
	}
	return lacking, nil
}
