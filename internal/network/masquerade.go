package network

import (
	"errors"
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The places of the addresses in an IPv4 header, in bytes.
const (
	sourceOffset      = 12
	destinationOffset = 16
	addressLength     = 4
)

// masquerade lets packets that leave the subnet carry the host's address, by a table of its own: other
// tables are neither read nor changed. Repeating it replaces the table.
func masquerade(table string, subnet netip.Prefix) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	t := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: table}
	// Added first, so that removing never fails; all three in one transaction.
	c.AddTable(t)
	c.DelTable(t)
	c.AddTable(t)
	chain := c.AddChain(&nftables.Chain{
		Name: "postrouting", Table: t, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	exprs := append(matchSubnet(sourceOffset, expr.CmpOpEq, subnet), matchSubnet(destinationOffset, expr.CmpOpNeq, subnet)...)
	c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: append(exprs, &expr.Counter{}, &expr.Masq{})})
	return c.Flush()
}

// removeTables removes the bridge's tables; missing ones are success.
func removeTables(bridge string) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	for _, name := range []string{bridge, portTable(bridge)} {
		c.DelTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: name})
		if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

// matchSubnet compares the network part of the address at offset with the subnet's.
func matchSubnet(offset uint32, op expr.CmpOp, subnet netip.Prefix) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: addressLength},
		&expr.Bitwise{
			SourceRegister: 1, DestRegister: 1, Len: addressLength,
			Mask: net.CIDRMask(subnet.Bits(), 8*addressLength), Xor: make([]byte, addressLength),
		},
		&expr.Cmp{Op: op, Register: 1, Data: subnet.Masked().Addr().AsSlice()},
	}
}
