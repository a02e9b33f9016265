package bridge

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/network/nft"
)

// iptables' table and chain for forwarded packets, as nftables names them, and the chain that
// Docker leaves to its users' rules. Docker sets the policy of FORWARD to drop, for every packet on
// the machine.
const (
	iptablesTable = "filter"
	forwardChain  = "FORWARD"
	dockerChain   = "DOCKER-USER"
)

// firewalldTable is firewalld's. It writes the table anew when it is reloaded: rules of others there would not last.
const firewalldTable = "inet firewalld"

// blockingError reports a firewall chain of the machine that drops or rejects the packets that its other rules do
// not match.
type blockingError struct{ table, chain, bridge string }

func (e *blockingError) Error() string {
	if e.table == firewalldTable {
		return fmt.Sprintf("firewalld rejects what is forwarded; allow it by: firewall-cmd --zone=trusted --add-interface=%s; "+
			"firewall-cmd --permanent --zone=trusted --add-interface=%s", e.bridge, e.bridge)
	}
	return fmt.Sprintf("chain %s of nftables' table %s drops what is forwarded; allow it by: "+
		"nft insert rule %s %s iifname %s accept; nft insert rule %s %s oifname %s accept",
		e.chain, e.table, e.table, e.chain, e.bridge, e.table, e.chain, e.bridge)
}

// acceptForwarded lets packets from and to the bridge pass the machine's own firewall where it drops what
// no rule accepts: it adds rules to iptables' chains, as iptables itself would write them. It does not
// change any other firewall; a *blockingError then says which rules are needed.
func acceptForwarded(bridge string) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	chains, err := c.ListChains()
	if err != nil {
		return fmt.Errorf("listing nftables' chains: %w", err)
	}
	var blocked error
	for _, chain := range chains {
		if drops, err := drops(c, chain); err != nil {
			return err
		} else if !drops {
			continue
		}
		if chain.Table.Family != nftables.TableFamilyINet &&
			chain.Table.Name == iptablesTable &&
			chain.Name == forwardChain {
			if err := accept(c, bestChain(chains, chain), bridge); err != nil {
				return err
			}
			continue
		}
		family := map[nftables.TableFamily]string{
			nftables.TableFamilyIPv4: "ip",
			nftables.TableFamilyIPv6: "ip6",
			nftables.TableFamilyINet: "inet",
		}[chain.Table.Family]
		if family != "" {
			blocked = errors.Join(blocked, &blockingError{
				table:  family + " " + chain.Table.Name,
				chain:  chain.Name,
				bridge: bridge,
			})
		}
	}
	return blocked
}

// drops reports whether a chain drops or rejects forwarded packets that none of its rules accepts: by its policy, or by
// a last rule for all of them.
func drops(c *nftables.Conn, chain *nftables.Chain) (bool, error) {
	if chain.Hooknum == nil || *chain.Hooknum != *nftables.ChainHookForward || chain.Type != nftables.ChainTypeFilter {
		return false, nil
	}
	if chain.Policy != nil && *chain.Policy == nftables.ChainPolicyDrop {
		return true, nil
	}
	rules, err := c.GetRules(chain.Table, chain)
	if errors.Is(err, unix.ENOENT) {
		return false, nil // it has just been removed
	}
	if err != nil {
		return false, fmt.Errorf("listing the rules of chain %s: %w", chain.Name, err)
	}
	return len(rules) > 0 && dropsAll(rules[len(rules)-1]), nil
}

// dropsAll reports whether a rule drops or rejects each packet that comes to it.
func dropsAll(r *nftables.Rule) bool {
	for _, e := range r.Exprs {
		switch e := e.(type) {
		case *expr.Counter, *expr.Log:
		case *expr.Reject:
			return true
		case *expr.Verdict:
			return e.Kind == expr.VerdictDrop
		case *expr.Target: // of iptables
			return e.Name == "REJECT"
		default:
			return false // it matches some only
		}
	}
	return false
}

// bestChain returns Docker's chain for users' rules if there is one, because Docker evaluates it
// before its own rules; else forward.
func bestChain(all []*nftables.Chain, forward *nftables.Chain) *nftables.Chain {
	for _, c := range all {
		if c.Name == dockerChain && c.Table.Name == forward.Table.Name && c.Table.Family == forward.Table.Family {
			return c
		}
	}
	return forward
}

// accept inserts rules before the chain's others that accept packets from the bridge and to it,
// unless both are there.
func accept(c *nftables.Conn, chain *nftables.Chain, bridge string) error {
	rules, err := ours(c, chain, bridge)
	if err != nil || len(rules) == 2 {
		return err
	}
	for _, r := range rules {
		if err := c.DelRule(r); err != nil {
			return err
		}
	}
	for _, key := range []expr.MetaKey{expr.MetaKeyIIFNAME, expr.MetaKeyOIFNAME} {
		c.InsertRule(&nftables.Rule{Table: chain.Table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: key, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: append([]byte(bridge), 0)},
			&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictAccept},
		}})
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("letting pods through chain %s: %w", chain.Name, err)
	}
	return nil
}

// ours returns the rules of a chain that match packets from or to the bridge.
func ours(c *nftables.Conn, chain *nftables.Chain, bridge string) ([]*nftables.Rule, error) {
	rules, err := c.GetRules(chain.Table, chain)
	if err != nil {
		return nil, fmt.Errorf("listing the rules of chain %s: %w", chain.Name, err)
	}
	var found []*nftables.Rule
	for _, r := range rules {
		if len(r.Exprs) < 2 {
			continue
		}
		meta, isMeta := r.Exprs[0].(*expr.Meta)
		name, isCmp := r.Exprs[1].(*expr.Cmp)
		if isMeta && isCmp && (meta.Key == expr.MetaKeyIIFNAME || meta.Key == expr.MetaKeyOIFNAME) &&
			bytes.Equal(bytes.TrimRight(name.Data, "\x00"), []byte(bridge)) {
			found = append(found, r)
		}
	}
	return found, nil
}

// removeAccept removes the rules that acceptForwarded added.
func removeAccept(bridge string) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	for _, f := range nft.Families() {
		table := &nftables.Table{Family: f.Table, Name: iptablesTable}
		for _, name := range []string{forwardChain, dockerChain} {
			rules, err := ours(c, &nftables.Chain{Name: name, Table: table}, bridge)
			if errors.Is(err, unix.ENOENT) {
				continue
			}
			if err != nil {
				return err
			}
			for _, r := range rules {
				if err := c.DelRule(r); err != nil {
					return err
				}
			}
		}
	}
	return c.Flush()
}
