package bridge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/vishvananda/netlink"

	"podrun.io/podrun/internal/network/netdev"
	"podrun.io/podrun/internal/sys"
)

// orphanBridges returns the names of this network's bridges, except the one named but.
func (b *Bridge) orphanBridges(outside *netlink.Handle, but string) ([]string, error) {
	mine := b.identity.alias()
	if mine == "" {
		return nil, nil
	}
	links, err := netdev.Dump(outside.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing links: %w", err)
	}
	var names []string
	for _, l := range links {
		attrs := l.Attrs()
		cutOff := attrs.Alias == "" && slices.Equal(attrs.HardwareAddr, b.identity.hardwareAddr())
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
	lock, err := b.records.LockExisting(ctx)
	if !errors.Is(err, os.ErrNotExist) {
		return lock, err
	}
	names, err := b.orphanBridges(outside, "")
	if len(names) == 0 || err != nil {
		return nil, err
	}
	return b.records.Lock(ctx)
}
