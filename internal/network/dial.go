package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"

	"github.com/vishvananda/netns"
)

// Dial connects by TCP to an address as it is seen from the network namespace at path.
func Dial(ctx context.Context, path string, to netip.AddrPort) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // the thread is in the namespace for good, and ends with the goroutine
		ns, err := netns.GetFromPath(path)
		if err != nil {
			done <- result{err: fmt.Errorf("opening %s: %w", path, err)}
			return
		}
		defer ns.Close()
		if err := netns.Set(ns); err != nil {
			done <- result{err: fmt.Errorf("entering %s: %w", path, err)}
			return
		}
		var d net.Dialer // to a single address it makes the socket here
		conn, err := d.DialContext(ctx, "tcp", to.String())
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}
