// Package firewall lets packets from and to podrun's bridge pass the machine's own firewall: it adds rules to iptables'
// chains, and says what other firewalls need. It owns these rules alone, and knows the bridge by its name only.
//
// Start reading at Accept.
package firewall

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

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

// Accept lets packets from and to the bridge pass the machine's own firewall where it drops what no rule
// accepts: it adds rules to iptables' chains, as iptables itself would write them, unless they are there.
// It does not change any other firewall: its error then says which rules are needed.
func Accept(bridge string) error {
	c, err := nft.New()
	if err != nil {
		return err
	}
	chains, err := c.ListChains()
	if err != nil {
		return fmt.Errorf("listing nftables' chains: %w", err)
	}
	rules, blocked := missing(c, chains, bridge)
	for _, r := range rules {
		if r.Position != 0 {
			c.AddRule(r) // after the rule of that handle
		} else {
			c.InsertRule(r)
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("letting pods through the machine's firewall: %w", err)
	}
	return blocked
}

// Missing returns those of all chains of the machine that lack a rule which Accept would add, such as "ip filter
// FORWARD". They are valid also with an error, which is Accept's.
func Missing(c *nftables.Conn, all []*nftables.Chain, bridge string) (names []string, err error) {
	rules, blocked := missing(c, all, bridge)
	for _, r := range rules {
		names = append(names, nft.TableName(r.Table)+" "+r.Chain.Name)
	}
	return slices.Compact(names), blocked
}

// missing returns the rules that Accept has to add. They are valid also with an error: a chain that cannot be read, as
// with a rule that the library does not decode, keeps none from the others.
func missing(c *nftables.Conn, chains []*nftables.Chain, bridge string) (rules []*nftables.Rule, err error) {
	var blocked blockingError
	var errs []error
	for _, chain := range chains {
		if chain.Table.Name == bridge { // podrun's own
			continue
		}
		if drops, err := drops(c, chain); err != nil {
			errs = append(errs, err)
			continue
		} else if !drops {
			continue
		}
		if chain.Table.Family != nftables.TableFamilyINet &&
			chain.Table.Name == iptablesTable &&
			chain.Name == forwardChain {
			lacking, err := missingIn(c, bestChain(c, chains, chain), bridge)
			rules, errs = append(rules, lacking...), append(errs, err)
			continue
		}
		switch chain.Table.Family {
		case nftables.TableFamilyIPv4, nftables.TableFamilyIPv6, nftables.TableFamilyINet:
			if accepts, err := accepts(c, chains, chain, bridge); err != nil {
				errs = append(errs, err)
			} else if !accepts {
				blocked = append(blocked, blockingChain{nft.TableName(chain.Table), chain.Name, bridge})
			}
		}
	}
	if len(blocked) > 0 {
		errs = append(errs, blocked)
	}
	return rules, errors.Join(errs...)
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
	rules, err := rulesOf(c, chain)
	return len(rules) > 0 && dropsAll(rules[len(rules)-1]), err
}

// rulesOf returns the rules of a chain: none if it has just been removed.
func rulesOf(c *nftables.Conn, chain *nftables.Chain) ([]*nftables.Rule, error) {
	rules, err := c.GetRules(chain.Table, chain)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the rules of chain %s: %w", chain.Name, err)
	}
	return rules, nil
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

// bestChain returns Docker's chain for users' rules if packets get there, because Docker evaluates it before its own
// rules; else forward: what flushes all rules leaves Docker's chains, and nothing that leads to them.
func bestChain(c *nftables.Conn, all []*nftables.Chain, forward *nftables.Chain) *nftables.Chain {
	for _, docker := range all {
		if docker.Name == dockerChain && docker.Table.Name == forward.Table.Name &&
			docker.Table.Family == forward.Table.Family && leadsTo(c, forward, docker.Name) {
			return docker
		}
	}
	return forward
}

// leadsTo reports whether a rule of the chain jumps or goes to another one, also if its rules cannot be read.
func leadsTo(c *nftables.Conn, chain *nftables.Chain, other string) bool {
	rules, err := rulesOf(c, chain)
	return err != nil || slices.ContainsFunc(rules, func(r *nftables.Rule) bool {
		return slices.ContainsFunc(r.Exprs, func(e expr.Any) bool {
			v, ok := e.(*expr.Verdict)
			return ok && v.Chain == other
		})
	})
}

// missingIn returns the rules that the chain needs to accept packets from the bridge and to it, without those that it
// has. They go before its others, but after those that an administrator has written for the bridge, which they would
// keep from what they are for.
func missingIn(c *nftables.Conn, chain *nftables.Chain, bridge string) (lacking []*nftables.Rule, err error) {
	rules, err := c.GetRules(chain.Table, chain)
	if err != nil {
		return nil, fmt.Errorf("listing the rules of chain %s: %w", chain.Name, err)
	}
	after := uint64(0)
	for _, r := range rules {
		if endsAll(r) {
			break
		}
		if isFor(r, bridge) {
			after = r.Handle
		}
	}
	for _, exprs := range accepting(bridge) {
		if !slices.ContainsFunc(rules, func(r *nftables.Rule) bool { return is(r, exprs) }) {
			lacking = append(lacking, &nftables.Rule{Table: chain.Table, Chain: chain, Position: after, Exprs: exprs})
		}
	}
	return lacking, nil
}

// endsAll reports whether no packet that comes to a rule gets to the next one.
func endsAll(r *nftables.Rule) bool {
	for _, e := range r.Exprs {
		switch e := e.(type) {
		case *expr.Counter, *expr.Log:
		case *expr.Reject, *expr.Target:
			return true
		case *expr.Verdict:
			return e.Kind != expr.VerdictContinue && e.Kind != expr.VerdictJump
		default:
			return false
		}
	}
	return false
}

// isFor reports whether a rule is for packets from or to the bridge, whatever else it asks of them.
func isFor(r *nftables.Rule, bridge string) bool {
	return slices.ContainsFunc(accepting(bridge), func(exprs []expr.Any) bool {
		return len(r.Exprs) > 2 && equal(r.Exprs[0], exprs[0]) && equal(r.Exprs[1], exprs[1])
	})
}

// accepting returns the rules that accept packets from the bridge and to it, as iptables writes them. They have no
// comment that says whose they are: iptables-save and iptables-restore would make another rule of them.
func accepting(bridge string) (rules [][]expr.Any) {
	for _, key := range []expr.MetaKey{expr.MetaKeyIIFNAME, expr.MetaKeyOIFNAME} {
		rules = append(rules, []expr.Any{
			&expr.Meta{Key: key, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: append([]byte(bridge), 0)},
			&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictAccept},
		})
	}
	return rules
}

// is reports whether a rule is exactly the one of these expressions: one that asks more, or does something else, is an
// administrator's.
func is(r *nftables.Rule, exprs []expr.Any) bool {
	return len(r.UserData) == 0 && slices.EqualFunc(r.Exprs, exprs, equal)
}

// equal compares two expressions of the kinds in accepting. What a counter has counted is no difference.
func equal(a, b expr.Any) bool {
	switch a := a.(type) {
	case *expr.Meta:
		b, same := b.(*expr.Meta)
		return same && *a == *b
	case *expr.Cmp:
		b, same := b.(*expr.Cmp)
		// iptables writes a name with one zero after it, nft fills it up with them; without any, it is a beginning.
		name := func(data []byte) []byte { return bytes.TrimRight(data, "\x00") }
		whole := func(data []byte) bool { return len(name(data)) < len(data) }
		return same && a.Op == b.Op && a.Register == b.Register && bytes.Equal(name(a.Data), name(b.Data)) &&
			whole(a.Data) == whole(b.Data)
	case *expr.Counter:
		_, same := b.(*expr.Counter)
		return same
	case *expr.Verdict:
		b, same := b.(*expr.Verdict)
		return same && *a == *b
	}
	return false
}

// Remove removes the rules that Accept added.
func Remove(bridge string) error {
	c, err := nft.New()
	if err != nil {
		return err
	}
	for _, f := range nft.Families() {
		table := &nftables.Table{Family: f.Table, Name: iptablesTable}
		for _, name := range []string{forwardChain, dockerChain} {
			rules, err := rulesOf(c, &nftables.Chain{Name: name, Table: table})
			if err != nil {
				return err
			}
			for _, r := range rules {
				for _, exprs := range accepting(bridge) {
					if !is(r, exprs) {
						continue
					}
					if err := c.DelRule(r); err != nil {
						return err
					}
				}
			}
		}
	}
	return c.Flush()
}
