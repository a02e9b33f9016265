package bridge

import (
	"errors"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/network/nft"
	"podrun.io/podrun/internal/network/portmap"
)

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
	f := nft.FamilyOf(subnet.Addr())
	t := &nftables.Table{Family: f.Table, Name: bridge}
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
	leaving := append(
		nft.MatchSubnet(f.Source, expr.CmpOpEq, subnet),
		nft.MatchSubnet(f.Destination, expr.CmpOpNeq, subnet)...,
	)
	chain("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource,
		append(leaving, &expr.Counter{}, &expr.Masq{}))
	if subnet.Addr().Is4() {
		from := nft.MatchLink(expr.MetaKeyIIFNAME, bridge)
		chain("loopback", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRaw,
			nft.Rule(expr.VerdictDrop, from, nft.MatchSubnet(f.Destination, expr.CmpOpEq, nft.Loopback4)),
			nft.Rule(expr.VerdictDrop, from, nft.MatchSubnet(f.Source, expr.CmpOpEq, nft.Loopback4)))
	}
	if !open {
		to := nft.MatchLink(expr.MetaKeyOIFNAME, bridge)
		fromOthers := append(to, nft.CompareLink(expr.MetaKeyIIFNAME, expr.CmpOpNeq, bridge)...)
		chain("to-pods", nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityFilter,
			nft.Rule(expr.VerdictAccept, fromOthers,
				nft.AnyBit(expr.CtKeySTATE, expr.CtStateBitESTABLISHED|expr.CtStateBitRELATED)),
			nft.Rule(expr.VerdictAccept, fromOthers, nft.Translated()),
			nft.Rule(expr.VerdictDrop, fromOthers))
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
	for _, f := range nft.Families() {
		for _, name := range []string{bridge, portmap.Table(bridge)} {
			tables = append(tables, &nftables.Table{Family: f.Table, Name: name})
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
