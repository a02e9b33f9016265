package netdev

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys"
)

// InNamespace runs f on a thread of its own in the network namespace at path.
func InNamespace(path string, f func() error) error {
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

// LoopbackUp sets lo up in the network namespace at path.
func LoopbackUp(path string) error {
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
	if err := inside.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: Loopback}}); err != nil {
		return fmt.Errorf("setting lo up: %w", err)
	}
	return nil
}
