package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netns"

	"podrun.io/podrun/internal/sys"
)

// Dial connects by TCP to an address as it is seen from the network namespace at path.
func Dial(ctx context.Context, path string, to netip.AddrPort) (net.Conn, error) {
	var conn net.Conn
	err := inNamespace(path, func() (err error) {
		var d net.Dialer // to a single address it makes the socket here
		conn, err = d.DialContext(ctx, "tcp", to.String())
		return err
	})
	return conn, err
}

// inNamespace runs f in the network namespace at path.
func inNamespace(path string, f func() error) error {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	defer ns.Close()
	return sys.OnOwnThread(func() error {
		if err := netns.Set(ns); err != nil {
			return fmt.Errorf("entering %s: %w", path, err)
		}
		return f()
	})
}
