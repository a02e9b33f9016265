package network

import (
	"errors"
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// family is an address family (IPv4 or IPv6) as nftables names it, with the offsets of the
// addresses in the packet header and their length, in bytes.
type family struct {
	table               nftables.TableFamily
	number              uint32
	source, destination uint32
	length              uint32
}

func familyOf(addr netip.Addr) family {
	if addr.Is4() {
		return family{
			table:       nftables.TableFamilyIPv4,
			number:      unix.NFPROTO_IPV4,
			source:      12,
			destination: 16,
			length:      4,
		}
	}
	return family{
		table:       nftables.TableFamilyIPv6,
		number:      unix.NFPROTO_IPV6,
		source:      8,
		destination: 24,
		length:      16,
	}
}

// families returns IPv4 and IPv6.
func families() []family {
	return []family{familyOf(netip.IPv4Unspecified()), familyOf(netip.IPv6Unspecified())}
}

// installRules creates the bridge's nftables table of the subnet's family; a repeated call replaces the table.
// It neither reads nor changes other tables. The table stays as long as the bridge. Its rules
//   - masquerade packets that leave the subnet, so that they have the host's address;
//   - keep pods from the machine's loopback addresses, which the bridge routes if host ports need it
//     (route_localnet);
//   - unless open, accept packets from other links to pods only if they belong to a connection of a
//     pod or to a published port, and drop the rest.
func installRules(bridge string, subnet netip.Prefix, open bool) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	f := familyOf(subnet.Addr())
	t := &nftables.Table{Family: f.table, Name: bridge}
	// Added first, so that deleting it never fails; all three in one transaction.
	c.AddTable(t)
	c.DelTable(t)
	c.AddTable(t)
	chain := func(
		name string,
		kind nftables.ChainType,
		hook *nftables.ChainHook,
		priority *nftables.ChainPriority,
		rules ...[]expr.Any,
	) {
		chain := c.AddChain(&nftables.Chain{Name: name, Table: t, Type: kind, Hooknum: hook, Priority: priority})
		for _, exprs := range rules {
			c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: exprs})
		}
	}
	leaving := append(matchSubnet(f.source, expr.CmpOpEq, subnet), matchSubnet(f.destination, expr.CmpOpNeq, subnet)...)
	chain("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource,
		append(leaving, &expr.Counter{}, &expr.Masq{}))
	// The machine receives frames to the addresses that are reserved for bridges (IEEE 802.1D) by
	// the port and not by the bridge, so they bypass the bridge's fence. Such frames carry no IP
	// packets, unless they are forged.
	chain("reserved", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRaw,
		rule(expr.VerdictDrop, []expr.Any{
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseLLHeader, Offset: 0, Len: 5},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{0x01, 0x80, 0xc2, 0, 0}},
		}))
	if subnet.Addr().Is4() {
		from := matchLink(expr.MetaKeyIIFNAME, bridge)
		chain("loopback", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRaw,
			rule(expr.VerdictDrop, from, matchSubnet(f.destination, expr.CmpOpEq, loopback4)),
			rule(expr.VerdictDrop, from, matchSubnet(f.source, expr.CmpOpEq, loopback4)))
	}
	if !open {
		to := matchLink(expr.MetaKeyOIFNAME, bridge)
		fromOthers := append(to, compareLink(expr.MetaKeyIIFNAME, expr.CmpOpNeq, bridge)...)
		chain("to-pods", nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityFilter,
			rule(expr.VerdictAccept, fromOthers,
				anyBit(expr.CtKeySTATE, expr.CtStateBitESTABLISHED|expr.CtStateBitRELATED)),
			rule(expr.VerdictAccept, fromOthers, translated()),
			rule(expr.VerdictDrop, fromOthers))
	}
	return c.Flush()
}

// removeTables removes the bridge's tables. It is no error if one does not exist.
func removeTables(bridge string) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	tables := []*nftables.Table{{Family: nftables.TableFamilyBridge, Name: bridge}}
	for _, f := range families() {
		for _, name := range []string{bridge, portTable(bridge)} {
			tables = append(tables, &nftables.Table{Family: f.table, Name: name})
		}
	}
	var all []error
	for _, t := range tables {
		c.DelTable(t)
		if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

// matchSubnet compares the network part of the address at offset in the IP header with the
// subnet's.
func matchSubnet(offset uint32, op expr.CmpOp, subnet netip.Prefix) []expr.Any {
	length := familyOf(subnet.Addr()).length
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length},
		&expr.Bitwise{
			SourceRegister: 1, DestRegister: 1, Len: length,
			Mask: net.CIDRMask(subnet.Bits(), int(8*length)), Xor: make([]byte, length),
		},
		&expr.Cmp{Op: op, Register: 1, Data: subnet.Masked().Addr().AsSlice()},
	}
}
