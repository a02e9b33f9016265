package firewall

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"podrun.io/podrun/internal/network/nft"
)

// firewalldTable is firewalld's. It writes the table anew when it is reloaded: rules of others there would not last.
// Its chains with firewalldForward in front lead what comes from a link to the chains of the link's zone.
const (
	firewalldTable   = "inet firewalld"
	firewalldForward = "filter_FORWARD_"
	firewalldTrusted = "_trusted"
)

// blockingError reports firewall chains of the machine that drop or reject the packets that their other rules do not
// match, and do not accept those from and to the bridge.
type blockingError []blockingChain

// blockingChain is one of them. The table of iptables-legacy is its command.
type blockingChain struct{ table, chain, bridge string }

func (e blockingError) Error() string {
	lines := make([]string, len(e))
	for i, c := range e {
		lines[i] = c.String()
	}
	return strings.Join(lines, "\n")
}

func (c blockingChain) String() string {
	const allowed = "drops what is forwarded; allow it, also in the file from which this firewall is loaded, by: "
	switch {
	case c.table == firewalldTable:
		return fmt.Sprintf("firewalld rejects what is forwarded; allow it by: firewall-cmd --zone=trusted --add-interface=%s; "+
			"firewall-cmd --permanent --zone=trusted --add-interface=%s", c.bridge, c.bridge)
	case strings.HasSuffix(c.table, "-legacy"):
		return fmt.Sprintf("chain %s of %s "+allowed+"%s -I %s -i %s -j ACCEPT; %s -I %s -o %s -j ACCEPT",
			c.chain, c.table, c.table, c.chain, c.bridge, c.table, c.chain, c.bridge)
	}
	return fmt.Sprintf("chain %s of nftables' table %s "+allowed+
		"nft insert rule %s %s iifname %s accept; nft insert rule %s %s oifname %s accept",
		c.chain, c.table, c.table, c.chain, c.bridge, c.table, c.chain, c.bridge)
}

// IsBlocking reports that an error of Accept says that a firewall drops packets, which Accept does not change. Nothing
// has failed then.
func IsBlocking(err error) bool {
	var blocked blockingError
	return errors.As(err, &blocked)
}

// Warned is of what a user has been warned. Its method may be called from any goroutine.
type Warned struct {
	mu      sync.Mutex
	blocked blockingError
	failed  bool
	legacy  []string // the tables of each iptables-legacy that were seen last
}

// IsNew reports whether an error of Accept or Missing, or nil, is worth a warning: a chain blocks that did not at the
// last call, as after its firewall was loaded anew without the rules for the bridge, or, once, another error.
func (w *Warned) IsNew(err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	var now blockingError
	if err != nil && !errors.As(err, &now) {
		before := w.failed
		w.failed = true
		return !before
	}
	before := w.blocked
	w.blocked = now
	return slices.ContainsFunc(now, func(c blockingChain) bool { return !slices.Contains(before, c) })
}

// accepts reports whether a chain that drops other packets accepts those from the bridge and to it, by rules like those
// that String names, or, in firewalld's table, because the bridge is in the zone "trusted".
func accepts(c *nftables.Conn, all []*nftables.Chain, chain *nftables.Chain, bridge string) (bool, error) {
	if nft.TableName(chain.Table) == firewalldTable {
		return isTrusted(c, all, bridge)
	}
	rules, err := rulesOf(c, chain)
	for _, exprs := range accepting(bridge) {
		if !slices.ContainsFunc(rules, func(r *nftables.Rule) bool {
			return slices.EqualFunc(uncounted(r.Exprs), uncounted(exprs), equal)
		}) {
			return false, err
		}
	}
	return true, err
}

func isTrusted(c *nftables.Conn, all []*nftables.Chain, bridge string) (bool, error) {
	for _, chain := range all {
		if nft.TableName(chain.Table) != firewalldTable || !strings.HasPrefix(chain.Name, firewalldForward) {
			continue
		}
		rules, err := rulesOf(c, chain)
		if err != nil || slices.ContainsFunc(rules, func(r *nftables.Rule) bool {
			return isFor(r, bridge) && slices.ContainsFunc(r.Exprs, leadsToTrusted)
		}) {
			return err == nil, err
		}
	}
	return false, nil
}

func leadsToTrusted(e expr.Any) bool {
	v, is := e.(*expr.Verdict)
	return is && strings.Contains(v.Chain, firewalldTrusted)
}

// uncounted returns a rule without its counters.
func uncounted(exprs []expr.Any) []expr.Any {
	return slices.DeleteFunc(slices.Clone(exprs), func(e expr.Any) bool { _, is := e.(*expr.Counter); return is })
}
