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

// masquerade lets packets that leave the subnet carry the host's address, by a table of its own: other
// tables are neither read nor changed. Repeating it replaces the table.
func masquerade(table string, subnet netip.Prefix) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	f := familyOf(subnet.Addr())
	t := &nftables.Table{Family: f.table, Name: table}
	// Added first, so that removing never fails; all three in one transaction.
	c.AddTable(t)
	c.DelTable(t)
	c.AddTable(t)
	chain := c.AddChain(&nftables.Chain{
		Name: "postrouting", Table: t, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	exprs := append(matchSubnet(f.source, expr.CmpOpEq, subnet), matchSubnet(f.destination, expr.CmpOpNeq, subnet)...)
	c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: append(exprs, &expr.Counter{}, &expr.Masq{})})
	return c.Flush()
}

// removeTables removes the bridge's tables; missing ones are success.
func removeTables(bridge string) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	for _, f := range families() {
		for _, name := range []string{bridge, portTable(bridge)} {
			c.DelTable(&nftables.Table{Family: f.table, Name: name})
			if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
	}
	return nil
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
