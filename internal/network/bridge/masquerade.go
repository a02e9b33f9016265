package bridge

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"podrun.io/podrun/internal/network/nft"
	"podrun.io/podrun/internal/network/portmap"
	"podrun.io/podrun/internal/network/records"
)

// installRules creates the bridge's nftables tables, one of each subnet's family; a repeated call replaces them.
// It neither reads nor changes other tables. The tables stay as long as the bridge. Their rules
//   - masquerade packets of pods that leave by another link, so that they have the host's address. Where br_netfilter
//     is loaded, the chain sees what the bridge forwards, also to groups of pods and to all, and lets it pass;
//   - keep pods from the machine's loopback addresses, which the bridge routes if host ports need it
//     (route_localnet);
//   - unless open, accept packets from other links to pods only if they belong to a connection of a
//     pod or to a published port, and drop the rest.
//
// They are one transaction, because the kernel waits for all processors at the end of each. Where the kernel lacks a
// family, each table is one.
func installRules(dir *records.Dir, bridge string, subnets []netip.Prefix, open bool) error {
	err := installTables(dir, bridge, subnets, open)
	if err == nil || len(subnets) < 2 {
		return err
	}
	var all []error
	for _, subnet := range subnets {
		all = append(all, installTables(dir, bridge, []netip.Prefix{subnet}, open))
	}
	return errors.Join(all...)
}

func installTables(dir *records.Dir, bridge string, subnets []netip.Prefix, open bool) error {
	c, err := nft.New()
	if err != nil {
		return err
	}
	for _, subnet := range subnets {
		addTable(c, bridge, subnet, open)
	}
	if err := c.Flush(); err != nil {
		return err
	}
	return dir.Installed(routed(bridge, subnets))
}

func addTable(c *nftables.Conn, bridge string, subnet netip.Prefix, open bool) {
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
	leaving := slices.Concat(
		nft.MatchSubnet(f.Source, expr.CmpOpEq, subnet),
		nft.MatchSubnet(f.Destination, expr.CmpOpNeq, subnet), // what the machine sends to the bridge leaves by lo
		nft.CompareLink(expr.MetaKeyOIFNAME, expr.CmpOpNeq, bridge),
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
}

// removeTables removes the bridge's tables, those that exist.
func removeTables(bridge string) error {
	return nft.RemoveTables(func(t *nftables.Table) bool { return isOurs(t, bridge) })
}

// isOurs reports whether a table is one of the bridge's.
func isOurs(t *nftables.Table, bridge string) bool {
	if t.Family == nftables.TableFamilyBridge {
		return t.Name == bridge
	}
	ours := slices.ContainsFunc(nft.Families(), func(f nft.Family) bool { return f.Table == t.Family })
	return ours && (t.Name == bridge || t.Name == portmap.Table(bridge))
}
