package bridge

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/network/netdev"
	"podrun.io/podrun/internal/network/records"
)

const (
	subnetBits = 20
	// leastMTU6 is the MTU that IPv6 needs: the kernel gives no link with less an IPv6 address.
	leastMTU6 = 1280
)

// ranges returns the private address ranges that a subnet is chosen from, starting with the one
// that other software uses least.
func ranges() []netip.Prefix {
	return append([]netip.Prefix{netip.MustParsePrefix("10.64.0.0/10")}, netdev.Private()[1:]...)
}

// choose returns a record with name, subnet and MTU for a network whose bridge does not exist. It
// keeps what rec has where possible. It keeps the subnet that addresses are allocated of, whatever else uses it:
// pods have them.
func (k keeper) choose(outside *netlink.Handle, rec records.Record) (records.Record, error) {
	boot, noBoot := k.records.Boot()
	held, notHeld := k.addresses.owners()
	taken, err := netdev.UsedPrefixes(outside)
	if err := errors.Join(noBoot, notHeld, err); err != nil {
		return rec, err
	}
	run, subnet := k.identity.run, rec.Subnet
	at := slices.IndexFunc(taken, subnet.Overlaps)
	if at >= 0 && slices.ContainsFunc(slices.Collect(maps.Keys(held)), subnet.Contains) {
		k.log.Warn("the machine has got a route to addresses of the pods' network, which stays as it is because pods run: "+
			"pods, or who is there, may not be reached", "subnet", subnet, "route", taken[at])
	} else if at >= 0 || !subnet.IsValid() {
		if subnet, err = freeSubnet(run, taken); err != nil {
			return rec, err
		}
	}
	name := rec.Bridge
	if name == "" {
		if name, err = freeName(outside, run); err != nil {
			return rec, err
		}
	}
	chosen := records.Record{
		Bridge: name, Subnet: subnet, Subnet6: rec.Subnet6, Boot: boot, MTU: netdev.UplinkMTU(outside, unix.AF_INET),
	}
	if chosen.MTU < leastMTU6 {
		chosen.Subnet6 = netip.Prefix{}
	}
	if chosen = withIPv6(outside, chosen, run, "default"); chosen.Subnet6.IsValid() {
		chosen.MTU = min(chosen.MTU, netdev.UplinkMTU(outside, unix.AF_INET6)) // IPv6 is on no link with too little
	}
	return chosen, nil
}

// withIPv6 returns rec with an IPv6 subnet, if the machine has IPv6 and the bridge can have it: link is the
// bridge, or "default" before it exists. A bridge has one MTU: where IPv4's default route needs one that
// IPv6 does not allow, as through a tunnel, pods have no IPv6. With a wider one, their IPv4 connections
// would depend on ICMP from other machines.
func withIPv6(outside *netlink.Handle, rec records.Record, run, link string) records.Record {
	if !rec.Subnet6.IsValid() && rec.MTU >= leastMTU6 && netdev.HasIPv6(outside, link) {
		rec.Subnet6 = subnet6(run, rec.Boot)
	}
	return rec
}

// gainIPv6 gives a bridge the addresses that it lacks, and an IPv6 subnet if the machine has got IPv6 since the bridge
// was made, as when routers advertise late at boot. Pods have IPv6 if they start from then on, or had it before the
// bridge lost it. The caller holds the lock.
func (b *Bridge) gainIPv6(outside *netlink.Handle, rec records.Record, link netlink.Link) (records.Record, error) {
	had := rec.Subnet6
	rec, err := keeper{b}.address(outside, rec, link)
	if err == nil && rec.Subnet6 != had {
		err = b.ports.Repair() // without those by IPv6
	}
	if err != nil {
		return rec, err
	}
	gained := withIPv6(outside, rec, b.identity.run, rec.Bridge)
	if gained == rec {
		return rec, nil
	}
	// Recorded last: a process that is killed before leaves it to the next one.
	if gained, _, err = b.complete(outside, gained, link); err != nil {
		return rec, fmt.Errorf("giving it IPv6: %w", err)
	}
	if err := b.records.Save(gained); err != nil {
		return rec, err
	}
	return gained, b.ports.Repair()
}

// address gives the bridge those of its addresses that it lacks. If it cannot have IPv6's, as where an administrator
// has disabled IPv6, the network goes on without it, and the record that address saves and returns has none.
func (k keeper) address(outside *netlink.Handle, rec records.Record, link netlink.Link) (records.Record, error) {
	for _, subnet := range rec.Subnets() {
		gateway := &netlink.Addr{IPNet: ipNet(gatewayOf(subnet), subnet.Bits()), Flags: noDADFlag(subnet.Addr())}
		err := outside.AddrAdd(link, gateway)
		if err == nil || errors.Is(err, unix.EEXIST) {
			continue
		}
		if subnet != rec.Subnet6 {
			return rec, fmt.Errorf("giving it %s: %w", gateway.IPNet, err)
		}
		k.log.Warn("the bridge cannot have its IPv6 address: pods that start now have IPv4 alone",
			"address", gateway.IPNet, "err", err)
		rec.Subnet6 = netip.Prefix{}
		return rec, k.records.Save(rec)
	}
	return rec, nil
}

// subnet6 returns a subnet of the unique local addresses (RFC 4193) that no other network has: its
// identifier is a hash of the machine's boot ID and the run directory.
func subnet6(run, boot string) netip.Prefix {
	sum := sha256.Sum256([]byte(run + "\x00" + boot))
	base := [16]byte{0: 0xfd}
	copy(base[1:6], sum[:])
	return netip.PrefixFrom(netip.AddrFrom16(base), 64)
}

// counterpart returns the address with the same offset in subnet6 as addr has in subnet.
func counterpart(addr netip.Addr, subnet6, subnet netip.Prefix) netip.Addr {
	base, in, first := subnet6.Addr().As16(), addr.As4(), subnet.Masked().Addr().As4()
	binary.BigEndian.PutUint32(base[12:], binary.BigEndian.Uint32(in[:])-binary.BigEndian.Uint32(first[:]))
	return netip.AddrFrom16(base)
}

// freeName returns an unused link name for the bridge: podrun0 for the default run directory, else
// one with the run directory's hash. An existing link of that name belongs to other software, such
// as a podrun in a container with the host's network.
func freeName(outside *netlink.Handle, run string) (string, error) {
	sum := sha256.Sum256([]byte(run))
	names := []string{}
	if run == "/run/podrun" {
		names = append(names, netdev.Bridge+"0")
	}
	for i := 0; i+3 <= len(sum); i += 3 {
		names = append(names, netdev.Bridge+"-"+hex.EncodeToString(sum[i:i+3]))
	}
	for _, name := range names {
		_, err := outside.LinkByName(name)
		if netdev.IsNotFound(err) {
			return name, nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("links %s to %s are all taken", names[0], names[len(names)-1])
}

// freeSubnet returns the first subnet that overlaps no prefix of taken. The search starts at an
// offset that depends on the run directory, so that two podruns that choose at the same time choose
// differently.
func freeSubnet(run string, taken []netip.Prefix) (netip.Prefix, error) {
	sum := sha256.Sum256([]byte(run))
	start := binary.BigEndian.Uint32(sum[:4])
	for _, r := range ranges() {
		count := uint32(1) << (subnetBits - r.Bits())
		for i := range count {
			subnet := nthSubnet(r, (start+i)%count)
			if !overlaps(subnet, taken) {
				return subnet, nil
			}
		}
	}
	return netip.Prefix{}, fmt.Errorf("no free private subnet: this machine has routes to all of %v", ranges())
}

func nthSubnet(r netip.Prefix, n uint32) netip.Prefix {
	base := r.Addr().As4()
	first := binary.BigEndian.Uint32(base[:]) + n<<(32-subnetBits)
	return netip.PrefixFrom(addrOf(first), subnetBits)
}

func overlaps(p netip.Prefix, taken []netip.Prefix) bool {
	return slices.ContainsFunc(taken, p.Overlaps)
}

// gatewayOf returns the bridge's own address, the first of the subnet.
func gatewayOf(subnet netip.Prefix) netip.Addr { return subnet.Masked().Addr().Next() }

func addrOf(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}
