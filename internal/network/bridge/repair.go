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
		return k.mend(o, rec, link, true)
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
	for wait := time.Second; ; wait = min(2*wait, retryRepair) {
		err := k.restorePaced(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		k.log.Warn("keeping the pods' network complete failed", "retry", wait, "err", err)
		_ = sys.Sleep(ctx, wait)
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
		return err == nil && rec.Bridge == "" // there is no bridge
	}
	if err := k.rules.blocked.ByLegacy(rec.Bridge); err != nil {
		k.log.Warn(mayBlock, "err", err)
	}
	gone, err := k.missing(rec)
	return err == nil && len(gone) == 0
}

// missing returns what other programs have removed or changed, without what was refused.
func (k keeper) missing(rec records.Record) ([]string, error) {
	all, err := k.lacking(rec)
	return k.rules.refused.Without(all), err
}

func (k keeper) lacking(rec records.Record) (names []string, err error) {
	held, err := k.addresses.owners()
	if err != nil {
		return nil, err
	}
	if len(held) > 0 { // else nobody needs more than the rules
		var gateways []netip.Addr
		for _, subnet := range rec.Subnets() {
			gateways = append(gateways, gatewayOf(subnet))
		}
		if names, err = netdev.Lacking(rec.Bridge, gateways); err != nil {
			return nil, err
		}
	}
	rules, err := k.rules.missing(rec)
	return append(names, rules...), err
}

// restorePaced repairs what is missing. It holds no lock while it may not repair yet.
func (k keeper) restorePaced(ctx context.Context) error {
	if k.isComplete() {
		return nil
	}
	var gone []string
	err := k.existing(ctx, func(_ *netlink.Handle, rec records.Record, _ netlink.Link) (err error) {
		gone, err = k.missing(rec)
		return err
	})
	if err != nil || len(gone) == 0 {
		return err
	}
	if wait := k.repairs.Next(); wait > 0 {
		k.log.Warn("another program removes parts of the pods' network again and again: restoring them later",
			"missing", strings.Join(gone, ", "), "in", wait.Round(time.Second))
		if err := sys.Sleep(ctx, wait); err != nil {
			return err
		}
	}
	return k.existing(ctx, k.restore)
}

// existing calls do, with the lock held, if there is a bridge, or was one that pods need: then the link is nil.
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
			return do(outside, rec, nil)
		}
		if err != nil {
			return err
		}
		return do(outside, rec, link)
	})
}

// repair completes the bridge and its host ports. It returns the record as complete does.
func (k keeper) repair(outside *netlink.Handle, rec records.Record, link netlink.Link) (records.Record, error) {
	rec, whole, err := k.complete(outside, rec, link)
	if err == nil {
		err = k.ports.Repair()
	}
	if err != nil {
		return rec, err
	}
	var refused []string
	if !whole {
		refused, err = k.lacking(rec)
	}
	k.rules.refused.Set(refused, retryRepair)
	return rec, err
}

// restore repairs the bridge if anything is missing, and logs what. The caller holds the lock.
func (k keeper) restore(outside *netlink.Handle, rec records.Record, link netlink.Link) error {
	return k.mend(outside, rec, link, false)
}

// mend is restore; always says that it also repairs what cannot be seen to be missing, and logs nothing.
func (k keeper) mend(outside *netlink.Handle, rec records.Record, link netlink.Link, always bool) error {
	gone, err := k.missing(rec)
	if err != nil || len(gone) == 0 && !always {
		return err
	}
	if link == nil {
		rec, _, err = k.ensure(outside, rec)
	} else {
		rec, err = k.repair(outside, rec, link)
	}
	if err != nil || len(gone) == 0 {
		return err
	}
	if slices.ContainsFunc(routed(rec.Bridge, rec.Subnets()), func(t *nftables.Table) bool {
		return slices.Contains(gone, nft.TableName(t))
	}) {
		k.ports.ForgetUnmasked(rec)
	}
	left, err := k.lacking(rec)
	gone = slices.DeleteFunc(gone, func(name string) bool { return slices.Contains(left, name) })
	if len(gone) > 0 && !always {
		k.log.Warn("parts of the pods' network were missing or changed, and are restored: another program changed them",
			"missing", strings.Join(gone, ", "))
	}
	return err
}

// rules says which of the bridge's rules are missing.
type rules struct {
	records *records.Dir
	ports   *portmap.Ports
	log     *slog.Logger
	// unmasked limits the warning that masquerading does not work to one per process.
	unmasked sync.Once
	// blocked is what was said of firewalls that drop pods' packets.
	blocked firewall.Warned
	// read is what was missing when that was read last.
	read atomic.Pointer[reading]
	// refused is what the kernel refused when it was installed last.
	refused netdev.Refused
}

// reading is which rules are missing while the same are wanted and the machine's have the same generation: then no list
// of the machine's rules is needed, which may be very long.
type reading struct {
	generation uint32
	record     records.Record
	wanted     string
	missing    []string
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
// the chains of the machine's firewall that lack its rules. Without the lock, what a process is about to install or
// remove may be among them.
func (r *rules) missing(rec records.Record) ([]string, error) {
	ports, needless, err := r.ports.Tables(rec)
	if err != nil {
		return nil, err
	}
	wanted := append(tablesOf(rec), ports...)
	// Asked first: what changes while the rules are listed makes it another one.
	number, failed := nft.Generation()
	now := reading{generation: number, record: rec, wanted: nft.TableNames(wanted)}
	if last := r.read.Load(); failed == nil && last != nil &&
		last.generation == number && last.record == rec && last.wanted == now.wanted {
		return slices.Clone(last.missing), nil
	}
	all, whole := r.lacking(rec, wanted, needless)
	// What another process has installed, and has not recorded yet, is missing for a moment.
	if now.missing = slices.Clone(all); failed == nil && whole && r.refused.Has(all) {
		r.read.Store(&now)
	}
	return all, nil
}

// lacking returns which of the tables are not as they should be (see records.Dir.Strange), and the chains
// that lack the bridge's rules. If the kernel has no nftables, there is nothing to restore. whole says that all
// that could lack was read.
func (r *rules) lacking(rec records.Record, wanted, needless []*nftables.Table) (names []string, whole bool) {
	c, err := nft.New()
	var chains []*nftables.Chain
	if err == nil {
		chains, err = c.ListChains()
	}
	if err == nil {
		names, err = r.records.Strange(wanted, needless)
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
		r.log.Warn(mayBlock, "err", why)
	}
}

// mayBlock is the warning of another program's firewall.
const mayBlock = "a firewall may keep pods from reaching other machines"
