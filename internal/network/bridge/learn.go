package bridge

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/network/records"
)

// lldp is the bit of a bridge's mask of forwarded groups for 01:80:c2:00:00:0e (LLDP).
const lldp = 1 << 0x0e

// showLLDP makes the bridge treat frames to the address of LLDP as it does others, so that the
// fence's table sees them. The kernel otherwise learns the sender's address from them and hands
// them to the machine without asking nftables; it asks about those to the other reserved addresses.
func showLLDP(outside *netlink.Handle, bridge netlink.Link) error {
	// The name is part of the request, and a kernel before 6.2 refuses that for a link that is up.
	if is, ok := bridge.(*netlink.Bridge); ok && is.GroupFwdMask != nil && *is.GroupFwdMask == lldp {
		return nil
	}
	attrs := netlink.NewLinkAttrs() // only what changes
	attrs.Name, attrs.Index = bridge.Attrs().Name, bridge.Attrs().Index
	mask := uint16(lldp)
	if err := outside.LinkModify(&netlink.Bridge{LinkAttrs: attrs, GroupFwdMask: &mask}); err != nil {
		return fmt.Errorf("having it show frames to reserved addresses: %w", err)
	}
	return nil
}

// pin tells the kernel the hardware address of the pod behind a port, which it would otherwise
// learn from frames: whoever sends with another's address would get what is for the other, and the
// table of addresses has no bound. The entry ends with the port. No frame needs to go to all ports
// for want of an entry then.
func pin(outside *netlink.Handle, port netlink.Link, addr netip.Addr) error {
	// The entry first, because a running pod whose port is pinned must not miss a frame.
	if err := outside.NeighSet(&netlink.Neigh{
		LinkIndex:    port.Attrs().Index,
		Family:       unix.AF_BRIDGE,
		State:        netlink.NUD_NOARP, // static; with NUD_PERMANENT it would be the machine's own address
		Flags:        netlink.NTF_MASTER | netlink.NTF_STICKY,
		HardwareAddr: macOf(podPrefix, addr),
	}); err != nil {
		return fmt.Errorf("telling the bridge its hardware address: %w", err)
	}
	return errors.Join(outside.LinkSetLearning(port, false), outside.LinkSetFlood(port, false))
}

// pinAll pins the ports that the bridge has: a podrun that did not may have made them. Those of an
// older one, with any hardware address, still learn, but they cannot take a pinned address. Ports of a bridge that
// another program has removed become ports of this one.
func (f *fence) pinAll(outside *netlink.Handle, rec records.Record, bridge int) error {
	return f.each(outside, rec, func(p fenced, link netlink.Link) error {
		if link == nil {
			return nil
		}
		var err error
		switch link.Attrs().MasterIndex {
		case bridge:
		case 0:
			if err = outside.LinkSetMasterByIndex(link, bridge); err == nil {
				err = outside.LinkSetHairpin(link, true)
			}
		default:
			return nil
		}
		if err == nil {
			err = pin(outside, link, p.addr)
		}
		if err != nil && !errors.Is(err, unix.ENODEV) { // removed meanwhile
			return fmt.Errorf("pinning port %s: %w", p.link, err)
		}
		return nil
	})
}
