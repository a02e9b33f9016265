package netdev

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Forward turns on the forwarding of packets of addr's family between the machine's links.
func Forward(addr netip.Addr) error {
	path := forwarding(addr)
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if len(b) > 0 && b[0] == '1' {
		return nil
	}
	if addr.Is6() {
		if err := acceptRAWhileForwarding(); err != nil {
			return err
		}
	}
	return os.WriteFile(path, []byte("1"), 0)
}

// acceptRAWhileForwarding sets accept_ra of the machine's links from 1 to 2, so that they keep their
// addresses and routes from router advertisements although the machine forwards. With 1 the kernel
// would treat the machine as a router: it would remove these routes, on all links, and ignore
// advertisements. No link accepts what it did not accept before: those that forward already, such as
// a bridge of virtual machines, are left as they are. So are links that are made later, because they
// may be those of other software's containers, which could send advertisements: as that software
// expects, they ignore them. The bridge, which is among the links, is set to 0 before it is up.
func acceptRAWhileForwarding() error {
	const conf = "/proc/sys/net/ipv6/conf"
	links, err := os.ReadDir(conf)
	if err != nil {
		return err
	}
	for _, link := range links {
		name := link.Name()
		if name == "all" || name == "default" || name == "lo" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(conf, name, "accept_ra"))
		var forwards []byte
		if err == nil {
			forwards, err = os.ReadFile(filepath.Join(conf, name, "forwarding"))
		}
		if err == nil && strings.HasPrefix(string(b), "1") && strings.HasPrefix(string(forwards), "0") {
			err = setIPv6(name, "accept_ra", "2")
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) { // removed meanwhile
			return err
		}
	}
	return nil
}

// IgnoreRouterAdvertisements makes a link ignore router advertisements, which a pod could send.
func IgnoreRouterAdvertisements(link string) error {
	return setIPv6(link, "accept_ra", "0")
}

// setIPv6 sets an IPv6 parameter of a link. It does nothing without IPv6, or where the parameters
// are read-only and so are managed by others.
func setIPv6(link, parameter, value string) error {
	err := os.WriteFile("/proc/sys/net/ipv6/conf/"+link+"/"+parameter, []byte(value), 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.EROFS) {
		return nil
	}
	return err
}

// DisableDAD turns off duplicate address detection on a link: no other pod can have its
// addresses, and a pod that claims to have them could keep this one from using its own.
func DisableDAD(link string) error { return setIPv6(link, "accept_dad", "0") }
