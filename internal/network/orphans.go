package network

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/sys"
)

// alias returns the link alias of this network's bridge. It identifies the bridge after the run
// directory with its record was deleted. It includes the identity of the root directory, because a
// podrun in a container with the host's network may have directories of the same names. It is empty
// if there is no root directory.
func (b *Bridge) alias() string {
	var root unix.Stat_t
	if err := unix.Stat(b.root, &root); err != nil {
		return ""
	}
	return fmt.Sprintf("podrun %s %d:%d", b.run, root.Dev, root.Ino)
}

// hardwareAddr returns the hardware address of this network's bridge. Like the alias it identifies
// the bridge, but from its creation on: the kernel accepts an alias only for an existing link.
func (b *Bridge) hardwareAddr() net.HardwareAddr {
	sum := sha256.Sum256([]byte(b.run + b.alias()))
	addr := net.HardwareAddr(sum[:6])
	addr[0] = addr[0]&^0x01 | 0x02 // unicast, locally administered
	return addr
}

// orphanBridges returns the names of this network's bridges, except the one named but.
func (b *Bridge) orphanBridges(outside *netlink.Handle, but string) ([]string, error) {
	mine := b.alias()
	if mine == "" {
		return nil, nil
	}
	links, err := dump(outside.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing links: %w", err)
	}
	var names []string
	for _, l := range links {
		attrs := l.Attrs()
		cutOff := attrs.Alias == "" && slices.Equal(attrs.HardwareAddr, b.hardwareAddr())
		if l.Type() == "bridge" && attrs.Name != but && (attrs.Alias == mine || cutOff) {
			names = append(names, attrs.Name)
		}
	}
	return names, nil
}

// removeOrphanBridges removes this network's bridges that have no record, that is, all except the one
// named but.
func (b *Bridge) removeOrphanBridges(outside *netlink.Handle, but string) error {
	names, err := b.orphanBridges(outside, but)
	if err != nil {
		return err
	}
	for _, name := range names {
		b.log.Info("removing an orphaned bridge", "bridge", name)
		if err := b.remove(outside, name); err != nil {
			return err
		}
	}
	return nil
}

// lockIfExists locks the network if it exists: its records, or a bridge whose records were deleted
// with the run directory. It returns nil if neither exists.
func (b *Bridge) lockIfExists(ctx context.Context, outside *netlink.Handle) (*sys.Lock, error) {
	lock, err := lockExisting(ctx, b.dir)
	if !errors.Is(err, os.ErrNotExist) {
		return lock, err
	}
	names, err := b.orphanBridges(outside, "")
	if len(names) == 0 || err != nil {
		return nil, err
	}
	if err := os.MkdirAll(b.dir, layout.ModePrivate); err != nil {
		return nil, err
	}
	return lockDir(ctx, b.dir, layout.ModePrivate, (*sys.Lock).Unlock)
}
