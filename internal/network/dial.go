package network

import (
	"context"
	"net"
	"net/netip"

	"podrun.io/podrun/internal/network/netdev"
)

// Dial connects by TCP to an address as seen from the network namespace at path. The caller closes
// the connection.
func Dial(ctx context.Context, path string, to netip.AddrPort) (net.Conn, error) {
	var conn net.Conn
	err := netdev.InNamespace(path, func() (err error) {
		var d net.Dialer // for a single address it creates the socket on this thread
		conn, err = d.DialContext(ctx, "tcp", to.String())
		return err
	})
	return conn, err
}
