// Package bridge is podrun's own pod network: a Linux bridge with a veth pair for each pod.
//
// It is configured through netlink and nftables in-process, without running commands. The package
// owns the bridge, the veth pairs, the pods' addresses and the bridge's own nftables tables. It does
// not create or remove network namespaces: package sandbox does. Host ports are in package portmap,
// the rules in the machine's firewall in package firewall. All processes of one run directory share
// one bridge, which is removed with the last address unless Options.Keep is set.
//
// Start reading at Bridge.Setup in bridge.go, which creates the bridge. Each further file has one
// part: subnet.go chooses the bridge's subnet, address.go allocates addresses, veth.go connects a
// pod, fence.go keeps pods from using each other's addresses, learn.go keeps the kernel from
// learning them from frames, masquerade.go keeps pods apart from the machine and from other links,
// and repair.go restores rules that other programs have removed.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/network/firewall"
	"podrun.io/podrun/internal/network/netdev"
	"podrun.io/podrun/internal/network/portmap"
	"podrun.io/podrun/internal/network/records"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/pace"
)

// Options configure a Bridge.
type Options struct {
	Dirs layout.Dirs
	Log  *slog.Logger
	// Keep leaves the bridge in place when its last pod is removed, so that the next pod does not
	// wait for a new one. Close removes it.
	Keep bool
	// Open lets packets from other links through to any port of the pods.
	Open bool
	// Boot returns the kernel's boot ID. nil: sys.BootID.
	Boot func() (string, error)
}

// Bridge is the pod network of one run directory: a Linux bridge with a veth pair per pod. All
// processes of the run directory share it; a lock on the directory of its records serializes
// changes.
type Bridge struct {
	identity  identity
	records   *records.Dir
	addresses *ipam
	ports     *portmap.Ports
	fence     *fence
	log       *slog.Logger
	keep      bool
	open      bool
	rules     *rules
	// repairs limits how often Watch repairs: it may be that another program removes the rules at once each time.
	repairs pace.Pace
}

// New returns the network of a run directory. It changes nothing yet.
func New(o Options) *Bridge {
	boot := o.Boot
	if boot == nil {
		boot = sync.OnceValues(sys.BootID)
	}
	id := identity{run: filepath.Clean(o.Dirs.Run), root: o.Dirs.Root}
	dir := &records.Dir{Path: o.Dirs.Networks().Bridge(), Boot: boot, Log: o.Log}
	addresses := &ipam{records: dir}
	ports := portmap.New(dir)
	return &Bridge{
		identity:  id,
		records:   dir,
		addresses: addresses,
		ports:     ports,
		rules:     &rules{records: dir, ports: ports, log: o.Log},
		fence:     &fence{identity: id, records: dir, addresses: addresses, log: o.Log},
		log:       o.Log,
		keep:      o.Keep,
		open:      o.Open,
		repairs:   pace.Pace{AtOnce: repairsAtOnce, Every: repairEvery},
	}
}

// Close removes the network if no pod has an address or a host port in it.
func (b *Bridge) Close() error {
	if err := b.removeIdle(); err != nil {
		return fmt.Errorf("removing the idle network: %w", err)
	}
	return nil
}

func (b *Bridge) removeIdle() error {
	return b.inspect(context.Background(), func(outside *netlink.Handle) error {
		if idle, err := b.records.Idle(); err != nil || !idle {
			return err
		}
		return b.dismantle(outside)
	})
}

// inspect calls do with the lock held. It does nothing if there never was a network.
func (b *Bridge) inspect(ctx context.Context, do func(outside *netlink.Handle) error) error {
	outside, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("opening netlink: %w", err)
	}
	defer outside.Close()
	lock, err := b.lockIfExists(ctx, outside)
	if lock == nil || err != nil {
		return err
	}
	defer lock.Unlock()
	return do(outside)
}

// Setup connects the network namespace at the path netns: it sets lo up, adds eth0 with an address
// of its own and a default route via the bridge, and forwards p's host ports to it. With netns "",
// for a pod in the host's network, it only reserves the host ports. id is the sandbox ID. After an
// error the caller must call Teardown, which releases what was reserved. A *PortInUseError means
// that a later call may succeed.
func (b *Bridge) Setup(ctx context.Context, id, netns string, p *v1.Pod) ([]netip.Addr, error) {
	if netns == "" {
		if err := b.Reserve(ctx, id, portmap.RecordOf(p)); err != nil {
			return nil, fmt.Errorf("taking the pod's host ports: %w", err)
		}
		return nil, nil
	}
	addrs, err := b.setup(ctx, id, netns, p)
	if err != nil {
		return nil, fmt.Errorf("connecting the pod's network: %w", err)
	}
	return addrs, nil
}

// Reserve records c's host ports for id, for a pod whose ports the bridge does not forward: one in
// the host's network, or one connected by CNI plugins.
func (b *Bridge) Reserve(ctx context.Context, id string, c portmap.Record) error {
	if err := ctx.Err(); err != nil || len(c.Ports) == 0 {
		return err
	}
	lock, err := b.records.Lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	rec, err := b.current()
	if err != nil {
		return err
	}
	if rec.Bridge == "" { // the rules of one whose records were deleted would divert the ports
		outside, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return fmt.Errorf("opening netlink: %w", err)
		}
		defer outside.Close()
		if err := b.removeOrphanBridges(outside, ""); err != nil {
			return err
		}
	}
	return b.ports.Reserve(id, c)
}

func (b *Bridge) setup(ctx context.Context, id, netns string, wanted *v1.Pod) ([]netip.Addr, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	outside, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening netlink: %w", err)
	}
	defer outside.Close()
	record := portmap.RecordOf(wanted)
	p, err := b.acquire(ctx, outside, id, record)
	if err != nil {
		return nil, err
	}
	p.limits = pod.BandwidthOf(wanted)
	if err := connect(outside, p, netns); err != nil {
		return nil, err
	}
	if err := b.ports.Foreign(record.Ports); err != nil {
		// The rules of others must not depend on what this one cannot have.
		if undo := b.teardown(context.WithoutCancel(ctx), id, nil); undo != nil {
			b.log.Debug("a network that failed was not released", "id", id, "err", undo)
		}
		return nil, err
	}
	return p.addresses(), nil
}

// acquire reserves an address and c's ports for id and creates the bridge if necessary. The bridge
// stays as long as an address is reserved, so the rest of Setup needs no lock.
func (b *Bridge) acquire(ctx context.Context, outside *netlink.Handle, id string, c portmap.Record) (port, error) {
	lock, err := b.records.Lock(ctx)
	if err != nil {
		return port{}, err
	}
	defer lock.Unlock()
	rec, err := b.current()
	if err != nil {
		return port{}, err
	}
	rec, index, err := b.ensure(outside, rec)
	if err != nil {
		return port{}, fmt.Errorf("making the bridge: %w", err)
	}
	if c.Addr, err = b.addresses.allocate(rec, id); err != nil {
		return port{}, err
	}
	if rec.Subnet6.IsValid() {
		c.Addr6 = counterpart(c.Addr, rec.Subnet6, rec.Subnet)
	}
	if err := b.ports.Reserve(id, c); err != nil {
		return port{}, err
	}
	b.fence.add(outside, rec, b.fence.portOf(rec, c.Addr, id))
	return port{
		name:    b.identity.portName(id),
		bridge:  index,
		mtu:     rec.MTU,
		addr:    c.Addr,
		subnet:  rec.Subnet,
		addr6:   c.Addr6,
		subnet6: rec.Subnet6,
	}, nil
}

// current returns the record of this boot. A record of another boot is obsolete, because none of
// that boot's namespaces exist any more: current then removes all addresses and returns an empty
// record. The caller holds the lock.
func (b *Bridge) current() (records.Record, error) {
	boot, err := b.records.Boot()
	if err != nil {
		return records.Record{}, err
	}
	rec, err := b.records.Load()
	if err != nil || rec.Boot == boot {
		return rec, err
	}
	return records.Record{}, b.addresses.releaseAll()
}

// ensure creates the bridge unless it exists and is up; it restores the rules of one that does.
// Setting it up is the last step of its creation, so a bridge that is down was interrupted and is
// completed.
func (b *Bridge) ensure(outside *netlink.Handle, rec records.Record) (records.Record, int, error) {
	if rec.Bridge != "" {
		link, err := outside.LinkByName(rec.Bridge)
		if err == nil && link.Attrs().Flags&unix.IFF_UP != 0 {
			rec, err = b.gainIPv6(outside, rec, link)
			if err == nil {
				err = keeper{b}.restore(outside, rec, link)
			}
			return rec, link.Attrs().Index, err
		}
		if err != nil && !netdev.IsNotFound(err) {
			return rec, 0, err
		}
		if err == nil { // its creation was interrupted
			rec, err = keeper{b}.repair(outside, rec, link)
			return rec, link.Attrs().Index, err
		}
	}
	if err := b.removeOrphanBridges(outside, rec.Bridge); err != nil {
		return rec, 0, err
	}
	rec, err := keeper{b}.choose(outside, rec)
	if err != nil {
		return rec, 0, err
	}
	// Save the record before the bridge is created: a bridge without a record is not ours.
	if err := b.records.Save(rec); err != nil {
		return rec, 0, err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = rec.Bridge, rec.MTU
	// Fixed, because the kernel would otherwise change it as ports are added and removed, and pods
	// have the gateway's address in their neighbour caches.
	attrs.HardwareAddr = b.identity.hardwareAddr()
	link := &netlink.Bridge{LinkAttrs: attrs}
	if err := outside.LinkAdd(link); err != nil {
		return rec, 0, fmt.Errorf("adding link %s: %w", rec.Bridge, hint(err))
	}
	if alias := b.identity.alias(); alias != "" {
		if err := outside.LinkSetAlias(link, alias); err != nil {
			return rec, 0, fmt.Errorf("giving link %s its alias: %w", rec.Bridge, err)
		}
	}
	rec, err = keeper{b}.repair(outside, rec, link)
	return rec, link.Attrs().Index, err
}

// complete gives the bridge its addresses, turns on forwarding and masquerading, and installs the
// rules for what pods may send. It returns the record as address does, and whether nothing was refused.
func (b *Bridge) complete(
	outside *netlink.Handle, rec records.Record, link netlink.Link,
) (_ records.Record, whole bool, err error) {
	if rec, err = (keeper{b}).address(outside, rec, link); err != nil {
		return rec, false, err
	}
	whole = true
	for _, subnet := range rec.Subnets() {
		if err := netdev.Forward(subnet.Addr()); err != nil {
			whole = false
			b.log.Warn("cannot turn on forwarding: pods reach only each other and this machine",
				"subnet", subnet, "err", err)
		}
	}
	masked := installRules(b.records, rec.Bridge, rec.Subnets(), b.open)
	if masked != nil {
		b.rules.warnUnmasked(masked)
	}
	fenced := b.fence.rebuild(outside, rec)
	if fenced != nil {
		b.fence.warnUnfenced(fenced)
	}
	if err := showLLDP(outside, link); err != nil {
		return rec, false, err
	}
	// The machine must not accept a pod as its router.
	if err := netdev.IgnoreRouterAdvertisements(rec.Bridge); err != nil {
		return rec, false, err
	}
	pinned := b.fence.pinAll(outside, rec, link.Attrs().Index)
	notAccepted := b.rules.accept(rec.Bridge)
	whole = whole && masked == nil && fenced == nil && !notAccepted
	return rec, whole, errors.Join(pinned, outside.LinkSetUp(link))
}

// Yield gives the host ports of id to another pod that shares them, if there is one; see portmap.Ports.Yield.
func (b *Bridge) Yield(ctx context.Context, id string) error {
	if !b.ports.Has(id) {
		return nil
	}
	if err := b.inspect(ctx, func(*netlink.Handle) error { return b.ports.Yield(id) }); err != nil {
		return fmt.Errorf("giving the pod's host ports to its successor: %w", err)
	}
	return nil
}

// Teardown removes id's link if it still exists and frees its address and host ports. With the last
// of them it removes the bridge, the nftables tables and the records, unless Options.Keep is set.
func (b *Bridge) Teardown(ctx context.Context, id string) error {
	if err := b.teardown(ctx, id, nil); err != nil {
		return fmt.Errorf("releasing the pod's network: %w", err)
	}
	return nil
}

// Sweep is Teardown for an ID that is not known. It asks with the lock held, while no process can
// reserve anything, and does nothing if the ID is known.
func (b *Bridge) Sweep(ctx context.Context, id string, known func(id string) bool) error {
	return b.teardown(ctx, id, known)
}

// teardown releases what id has. If known is not nil, it does so only if known(id) is false; it
// asks with the lock held, while no process can reserve anything.
func (b *Bridge) teardown(ctx context.Context, id string, known func(id string) bool) error {
	outside, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("opening netlink: %w", err)
	}
	defer outside.Close()
	// Remove the link first: the next owner of the address must not meet it on two links.
	if known == nil {
		if err := removeLink(outside, b.identity.portName(id)); err != nil {
			return err
		}
	}
	lock, err := b.lockIfExists(ctx, outside)
	if lock == nil || err != nil {
		return err
	}
	defer lock.Unlock()
	if known != nil {
		if known(id) {
			return nil
		}
		if err := removeLink(outside, b.identity.portName(id)); err != nil {
			return err
		}
	}
	return b.releaseAll(outside, id)
}

// Holders returns the IDs that have an address or a host port, possibly more than once. It takes no
// lock, so it never waits; an ID that is added or removed meanwhile may be among them or not.
func (b *Bridge) Holders() ([]string, error) {
	owners, err := b.addresses.owners()
	if err != nil {
		return nil, err
	}
	ids, err := b.ports.IDs()
	return append(slices.Collect(maps.Values(owners)), ids...), err
}

// releaseAll frees id's ports and address, and removes the network after the last one. The caller
// holds the lock.
func (b *Bridge) releaseAll(outside *netlink.Handle, id string) error {
	if err := b.ports.Release(id); err != nil {
		return err
	}
	if err := b.addresses.release(id); err != nil {
		return err
	}
	if err := b.fence.countRemoved(outside); err != nil || b.keep {
		return err
	}
	if idle, err := b.records.Idle(); err != nil || !idle {
		return err
	}
	return b.dismantle(outside)
}

// dismantle removes everything the network consists of. The caller holds the lock.
func (b *Bridge) dismantle(outside *netlink.Handle) error {
	boot, err := b.records.Boot()
	if err != nil {
		return err
	}
	rec, err := b.records.Load()
	if err != nil {
		return err
	}
	// After a reboot, the names in the record may belong to another program.
	if rec.Bridge != "" && rec.Boot == boot {
		if err := b.remove(outside, rec.Bridge); err != nil {
			return err
		}
	}
	if err := b.removeOrphanBridges(outside, ""); err != nil {
		return err
	}
	return b.records.Remove()
}

// remove removes a bridge and all rules for it. The bridge goes down first: one that is up counts as complete, and this
// process may be killed when the rules are gone and the bridge is not. The rest is done at the same time, because the
// kernel waits long for both.
func (b *Bridge) remove(outside *netlink.Handle, bridge string) error {
	link, err := outside.LinkByName(bridge)
	if netdev.IsNotFound(err) {
		b.removeRules(bridge)
		return nil
	}
	if err != nil {
		return err
	}
	if err := outside.LinkSetDown(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("setting link %s down: %w", bridge, err)
	}
	var removal sync.WaitGroup
	removal.Go(func() { err = deleteLink(outside, link) })
	b.removeRules(bridge) // by this thread, which a test has put into another network namespace
	removal.Wait()
	return err
}

// removeRules removes all rules for a bridge. What is left of them does no harm without it.
func (b *Bridge) removeRules(bridge string) {
	if err := removeTables(bridge); err != nil {
		b.log.Debug("nftables tables were not removed", "bridge", bridge, "err", err)
	}
	if err := firewall.Remove(bridge); err != nil {
		b.log.Debug("rules in the machine's firewall were not removed", "bridge", bridge, "err", err)
	}
}

// hint adds a remedy or a reason to an error which says that podrun may not create a bridge on this machine, or that
// the bridge is full.
func hint(err error) error {
	if errors.Is(err, unix.EXFULL) {
		return fmt.Errorf("%w: the kernel allows a bridge at most 1,023 pods", err)
	}
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w: podrun cannot make network devices here; a pod with hostNetwork: true needs none", err)
	}
	return err
}
