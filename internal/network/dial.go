package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netns"

	"podrun.io/podrun/internal/sys"
)

// Dial connects by TCP to an address as seen from the network namespace at path. The caller closes
// the connection.
func Dial(ctx context.Context, path string, to netip.AddrPort) (net.Conn, error) {
	var conn net.Conn
	err := inNamespace(path, func() (err error) {
		var d net.Dialer // for a single address it creates the socket on this thread
		conn, err = d.DialContext(ctx, "tcp", to.String())
		return err
	})
	return conn, err
}

// inNamespace runs f on a thread of its own in the network namespace at path.
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
