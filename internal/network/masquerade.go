package network

import (
	"errors"
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// family is one of the two of the internet, as nftables and the packets' headers have it: where the
// addresses are and how long, in bytes.
type family struct {
	table               nftables.TableFamily
	number              uint32
	source, destination uint32
	length              uint32
}

func familyOf(addr netip.Addr) family {
	if addr.Is4() {
		return family{table: nftables.TableFamilyIPv4, number: unix.NFPROTO_IPV4, source: 12, destination: 16, length: 4}
	}
	return family{table: nftables.TableFamilyIPv6, number: unix.NFPROTO_IPV6, source: 8, destination: 24, length: 16}
}

// families are both.
func families() []family {
	return []family{familyOf(netip.IPv4Unspecified()), familyOf(netip.IPv6Unspecified())}
}

// guard makes the bridge's table of one family, which stays as long as the bridge: other tables are neither read nor
// changed, and repeating it replaces the table. It lets packets that leave the subnet carry the host's address, keeps
// pods from the machine's loopback, which host ports may have the bridge route to, and, unless the pods' network is open,
// lets other links' packets through to pods only if they belong to a connection of a pod's or to a published port's.
func guard(bridge string, subnet netip.Prefix, open bool) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	f := familyOf(subnet.Addr())
	t := &nftables.Table{Family: f.table, Name: bridge}
	// Added first, so that removing never fails; all three in one transaction.
	c.AddTable(t)
	c.DelTable(t)
	c.AddTable(t)
	chain := func(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority, rules ...[]expr.Any) {
		chain := c.AddChain(&nftables.Chain{Name: name, Table: t, Type: kind, Hooknum: hook, Priority: priority})
		for _, exprs := range rules {
			c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: exprs})
		}
	}
	leaving := append(matchSubnet(f.source, expr.CmpOpEq, subnet), matchSubnet(f.destination, expr.CmpOpNeq, subnet)...)
	chain("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource,
		append(leaving, &expr.Counter{}, &expr.Masq{}))
	// Frames to the addresses that bridges keep to themselves (IEEE 802.1D) come to the machine by their port and not by the
	// bridge, past its fence. None of them carries packets, unless somebody forges them.
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
		others := append(to, compareLink(expr.MetaKeyIIFNAME, expr.CmpOpNeq, bridge)...)
		chain("to-pods", nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityFilter,
			rule(expr.VerdictAccept, others, anyBit(expr.CtKeySTATE, expr.CtStateBitESTABLISHED|expr.CtStateBitRELATED)),
			rule(expr.VerdictAccept, others, translated()),
			rule(expr.VerdictDrop, others))
	}
	return c.Flush()
}

// removeTables removes the bridge's tables; missing ones are success.
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

// matchSubnet compares the network part of the address at offset with the subnet's.
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
