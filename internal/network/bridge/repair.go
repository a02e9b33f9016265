package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/network/firewall"
	"podrun.io/podrun/internal/network/netdev"
	"podrun.io/podrun/internal/network/nft"
	"podrun.io/podrun/internal/network/portmap"
	"podrun.io/podrun/internal/network/records"
	"podrun.io/podrun/internal/sys"
)

const (
	// Watch repairs so many times at once, and then once in a while.
	repairsAtOnce = 5
	repairEvery   = 30 * time.Second
	// retryRepair is when Watch tries again what has failed.
	retryRepair = time.Minute
	// acceptAtOnce is how often rules are put into the machine's firewall that another program changes meanwhile.
	acceptAtOnce = 3
)

// Repair restores rules that another program may have removed, or that a firewall which was started
// meanwhile needs. It does nothing if there is no bridge.
func (b *Bridge) Repair() error {
	k := keeper{b}
	if err := k.existing(context.Background(), func(o *netlink.Handle, rec records.Record, link netlink.Link) error {
		_, err := k.repair(o, rec, link)
		return err
	}); err != nil {
		return fmt.Errorf("mending the pods' network: %w", err)
	}
	return nil
}

// Watch repairs what other programs remove of the bridge's rules, as when they flush or load a
// firewall, and of the bridge itself, until ctx ends, which is its error. It sleeps until the machine's rules, links,
// addresses or forwarding change.
func (b *Bridge) Watch(ctx context.Context) error {
	err := netdev.Watch(ctx, netdev.Watched{
		Protocol: unix.NETLINK_NETFILTER, Groups: []int{unix.NFNLGRP_NFTABLES},
		Also: &netdev.Watched{Protocol: unix.NETLINK_ROUTE, Groups: []int{
			unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_NETCONF,
			unix.RTNLGRP_IPV6_NETCONF,
		}},
	}, func() { keeper{b}.watched(ctx) })
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EPROTONOSUPPORT) { // who may not listen makes no bridge either
		b.log.Debug("the machine's rules are not watched", "err", err)
		return nil
	}
	return err
}

// keeper keeps the rules of a bridge complete.
type keeper struct{ *Bridge }

// watched repairs what is missing, and tries that again until it succeeds or ctx ends.
func (k keeper) watched(ctx context.Context) {
	for {
		err := k.restorePaced(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		k.log.Warn("keeping the rules of the pods' network failed", "retry", retryRepair, "err", err)
		_ = sys.Sleep(ctx, retryRepair)
	}
}

// isComplete reports that nothing is missing. It takes no lock, because it is asked after each change of the machine's
// rules, which may be many: pods start meanwhile.
func (k keeper) isComplete() bool {
	boot, err := k.records.Boot()
	if err != nil {
		return false
	}
	rec, err := k.records.Load()
	if err != nil || rec.Bridge == "" || rec.Boot != boot {
		return false
	}
	gone, changed, err := k.missing(rec)
	return err == nil && len(gone)+len(changed) == 0
}

// missing returns which rules are missing, and what else other programs have changed.
func (k keeper) missing(rec records.Record) (gone, changed []string, err error) {
	var gateways []netip.Addr
	for _, subnet := range rec.Subnets() {
		gateways = append(gateways, gatewayOf(subnet))
	}
	if changed, err = netdev.Lacking(rec.Bridge, gateways); err == nil {
		gone, err = k.rules.missing(rec)
	}
	return gone, changed, err
}

// restorePaced repairs what is missing. It holds no lock while it may not repair yet.
func (k keeper) restorePaced(ctx context.Context) error {
	if k.isComplete() {
		return nil
	}
	var gone []string
	err := k.existing(ctx, func(_ *netlink.Handle, rec records.Record, _ netlink.Link) error {
		rules, changed, err := k.missing(rec)
		gone = append(rules, changed...)
		return err
	})
	if err != nil || len(gone) == 0 {
		return err
	}
	if wait := k.repairs.Next(); wait > 0 {
		k.log.Warn("another program removes the rules of the pods' network again and again: restoring them later",
			"missing", strings.Join(gone, ", "), "in", wait.Round(time.Second))
		if err := sys.Sleep(ctx, wait); err != nil {
			return err
		}
	}
	return k.existing(ctx, k.restore)
}

// existing calls do, with the lock held, if there is a bridge.
func (k keeper) existing(
	ctx context.Context, do func(outside *netlink.Handle, rec records.Record, link netlink.Link) error,
) error {
	return k.inspect(ctx, func(outside *netlink.Handle) error {
		rec, err := k.current()
		if err != nil || rec.Bridge == "" {
			return err
		}
		link, err := outside.LinkByName(rec.Bridge)
		if netdev.IsNotFound(err) {
			if held, err := k.addresses.owners(); err != nil || len(held) == 0 {
				return err // the next Setup creates it with all rules
			}
			_, _, err := k.ensure(outside, rec)
			return err
		}
		if err != nil {
			return err
		}
		return do(outside, rec, link)
	})
}

// repair completes the bridge and its host ports. It returns the record as complete does.
func (k keeper) repair(outside *netlink.Handle, rec records.Record, link netlink.Link) (records.Record, error) {
	rec, err := k.complete(outside, rec, link)
	if err != nil {
		return rec, err
	}
	return rec, k.ports.Repair()
}

// restore repairs the bridge if rules are missing, and logs which. The caller holds the lock.
func (k keeper) restore(outside *netlink.Handle, rec records.Record, link netlink.Link) error {
	gone, changed, err := k.missing(rec)
	if err != nil || len(gone)+len(changed) == 0 {
		return err
	}
	if _, err := k.repair(outside, rec, link); err != nil {
		return err
	}
	if len(changed) > 0 {
		k.warnChanged(changed)
	}
	if len(gone) == 0 {
		return nil
	}
	k.log.Warn("rules of the pods' network were missing or replaced, and are restored: another program changed the machine's firewall",
		"missing", strings.Join(gone, ", "))
	return nil
}

func (k keeper) warnChanged(missing []string) {
	k.log.Warn("the pods' network was changed by another program and is restored", "missing", strings.Join(missing, ", "))
}

// rules says which of the bridge's rules are missing.
type rules struct {
	ports *portmap.Ports
	log   *slog.Logger
	// unmasked limits the warning that masquerading does not work to one per process.
	unmasked sync.Once
	// blocked is what was said of firewalls that drop pods' packets.
	blocked firewall.Warned
	// complete is when nothing was missing.
	complete atomic.Pointer[completion]
	// refused is what the kernel refused when it was installed last.
	refused atomic.Pointer[refusal]
}

// completion is when all rules that a bridge needs were there: what is wanted then, and the generation of the machine's
// rules. As long as both are the same, no list of the machine's rules is needed, which may be very long.
type completion struct {
	generation uint32
	record     records.Record
	wanted     string
}

// refusal is what is missing because the kernel has refused it. Until then it is not tried again.
type refusal struct {
	names []string
	until time.Time
}

// setRefused records what is missing although it has just been installed, if that failed.
func (r *rules) setRefused(rec records.Record, failed bool) {
	r.refused.Store(nil)
	if failed {
		names, _ := r.lacking(rec, tablesOf(rec), nil)
		r.refused.Store(&refusal{names: names, until: time.Now().Add(retryRepair)})
	}
}

// withoutRefused returns those of all names that may be tried now. It forgets what is not missing any more.
func (r *rules) withoutRefused(all []string) []string {
	refused := r.refused.Load()
	if refused == nil {
		return all
	}
	still := slices.Clone(refused.names)
	still = slices.DeleteFunc(still, func(name string) bool { return !slices.Contains(all, name) })
	if len(still) == 0 || time.Now().After(refused.until) {
		r.refused.CompareAndSwap(refused, nil)
		return all
	}
	r.refused.CompareAndSwap(refused, &refusal{names: still, until: refused.until})
	return slices.DeleteFunc(all, func(name string) bool { return slices.Contains(still, name) })
}

// accept lets packets pass the machine's firewall. It tries again at once, because a program that changes the firewall
// meanwhile may have removed a chain or a rule that others follow. It reports whether that failed.
func (r *rules) accept(bridge string) (failed bool) {
	var err error
	for range acceptAtOnce {
		if err = firewall.Accept(bridge); err == nil || firewall.IsBlocking(err) {
			break
		}
	}
	r.warnBlocked(err)
	return err != nil && !firewall.IsBlocking(err)
}

// missing returns the tables of the bridge and of its host ports that are not there as podrun has installed them, and
// the chains of the machine's firewall that lack its rules, without what the kernel has just refused. Without the lock,
// what a process is about to install or remove may be among them.
func (r *rules) missing(rec records.Record) ([]string, error) {
	ports, needless, err := r.ports.Tables(rec)
	if err != nil {
		return nil, err
	}
	wanted := append(tablesOf(rec), ports...)
	// Asked first: what changes while the rules are listed makes it another one.
	number, failed := nft.Generation()
	now := completion{generation: number, record: rec, wanted: nft.TableNames(wanted) + firewall.LegacyTables()}
	if before := r.complete.Load(); failed == nil && before != nil && *before == now {
		return nil, nil
	}
	all, whole := r.lacking(rec, wanted, needless)
	if failed == nil && whole && len(all) == 0 {
		r.complete.Store(&now)
	}
	return r.withoutRefused(all), nil
}

// lacking returns which of the tables are not as they should be (see portmap.Ports.Strange), and the chains
// that lack the bridge's rules. If the kernel has no nftables, there is nothing to restore. whole says that all
// that could lack was read.
func (r *rules) lacking(rec records.Record, wanted, needless []*nftables.Table) (names []string, whole bool) {
	c, err := nftables.New()
	var chains []*nftables.Chain
	if err == nil {
		chains, err = c.ListChains()
	}
	if err == nil {
		names, err = r.ports.Strange(wanted, needless)
	}
	if err != nil {
		r.warnUnmasked(err)
		return nil, false
	}
	of, err := firewall.Missing(c, chains, rec.Bridge)
	r.warnBlocked(err)
	return append(names, of...), err == nil || firewall.IsBlocking(err)
}

// tablesOf returns the bridge's tables apart from those of host ports.
func tablesOf(rec records.Record) []*nftables.Table {
	return append(routed(rec.Bridge, rec.Subnets()), fenceOf(rec.Bridge))
}

// routed returns the tables that installRules creates.
func routed(bridge string, subnets []netip.Prefix) (all []*nftables.Table) {
	for _, subnet := range subnets {
		all = append(all, &nftables.Table{Family: nft.FamilyOf(subnet.Addr()).Table, Name: bridge})
	}
	return all
}

func (r *rules) warnUnmasked(why error) {
	r.unmasked.Do(func() {
		r.log.Warn("cannot set up nftables masquerading and filtering: pods reach only each other and this machine",
			"err", why)
	})
}

func (r *rules) warnBlocked(why error) {
	if r.blocked.IsNew(why) {
		r.log.Warn("a firewall may keep pods from reaching other machines", "err", why)
	}
}
