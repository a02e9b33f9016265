// Package network connects pods by a bridge of podrun's own, through netlink in-process: no command is
// run; or, where a user's CNI configuration says so, by CNI's plugins. It owns the bridge, the pods' addresses and host ports, and nftables tables of its
// own; it does not make or remove network namespaces. All processes of one run directory share one bridge, and with the last
// address everything goes.
package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// Options are what a Network, or a Bridge alone, needs.
type Options struct {
	Dirs layout.Dirs
	Log  *slog.Logger
	// Keep leaves the bridge when its last pod goes, so that the next one need not wait for it. Close
	// takes it away.
	Keep bool
	// Open lets other links' packets through to any port of pods on podrun's own bridge.
	Open bool
	// ConfDir has a user's CNI configuration; "" means none. BinDirs have the plugins.
	ConfDir string
	BinDirs []string
}

// Bridge is the network of one run directory.
type Bridge struct {
	dir  string // of the records
	run  string // names the network
	root string // podrun's root directory
	log  *slog.Logger
	boot func() (string, error)
	keep bool
	open bool
	// unmasked says once that pods cannot be masqueraded, unrouted that host ports are not on the loopback,
	// blocked that a firewall is in the way, unfenced that pods cannot be kept apart, foreign that a file among the
	// addresses is none.
	unmasked, unrouted, blocked, unfenced, foreign sync.Once
	// stale counts ports that are gone and still in the fence.
	stale atomic.Int32
}

// NewBridge returns the network; it touches nothing yet.
func NewBridge(o Options) *Bridge {
	return &Bridge{
		dir:  o.Dirs.Network(),
		run:  filepath.Clean(o.Dirs.Run),
		root: o.Dirs.Root,
		log:  o.Log,
		boot: sync.OnceValues(sys.BootID),
		keep: o.Keep,
		open: o.Open,
	}
}

// Close takes the network away if no pod has an address in it.
func (b *Bridge) Close() error {
	if err := b.removeIdle(); err != nil {
		return fmt.Errorf("removing the idle network: %w", err)
	}
	return nil
}

func (b *Bridge) removeIdle() error {
	return b.inspect(context.Background(), func(outside *netlink.Handle) error {
		if idle, err := b.idle(); err != nil || !idle {
			return err
		}
		return b.dismantle(outside)
	})
}

// inspect calls do with the lock held, unless there never was a network.
func (b *Bridge) inspect(ctx context.Context, do func(outside *netlink.Handle) error) error {
	outside, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("opening netlink: %w", err)
	}
	defer outside.Close()
	lock, err := b.lockWhatIs(ctx, outside)
	if lock == nil || err != nil {
		return err
	}
	defer lock.Unlock()
	return do(outside)
}

// Mend makes rules anew that somebody may have removed or that a firewall that was started meanwhile needs.
// Without a bridge there is nothing to mend.
func (b *Bridge) Mend() error {
	if err := b.inspect(context.Background(), b.mend); err != nil {
		return fmt.Errorf("mending the pods' network: %w", err)
	}
	return nil
}

func (b *Bridge) mend(outside *netlink.Handle) error {
	rec, err := b.current()
	if err != nil || rec.Bridge == "" {
		return err
	}
	link, err := outside.LinkByName(rec.Bridge)
	if isNotFound(err) {
		return nil // it is made, with all rules, for the next pod
	}
	if err != nil {
		return err
	}
	if _, err := b.complete(outside, rec, link); err != nil {
		return err
	}
	held, err := b.claims()
	if err != nil || len(held) == 0 {
		return err
	}
	return b.publish(held, "")
}

// Setup connects the network namespace at the path netns: lo up, eth0 with an address of its own and a
// default route by the bridge; and it leads p's host ports there. Without netns, for a pod in the host's
// network, it only takes the host ports. After an error the caller calls Teardown, which releases what
// was taken. A *PortTakenError says that it may go well later.
func (b *Bridge) Setup(ctx context.Context, id, netns string, p *v1.Pod) ([]netip.Addr, error) {
	if netns == "" {
		if err := b.reserve(ctx, id, claimOf(p)); err != nil {
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

// reserve takes c's ports for a pod in the host's network.
func (b *Bridge) reserve(ctx context.Context, id string, c claim) error {
	if err := ctx.Err(); err != nil || len(c.Ports) == 0 {
		return err
	}
	if err := os.MkdirAll(b.dir, layout.ModePrivate); err != nil {
		return err
	}
	lock, err := lockDir(ctx, b.dir, layout.ModePrivate, (*sys.Lock).Unlock)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	if _, err := b.current(); err != nil {
		return err
	}
	return b.hold(id, c)
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
	p, err := b.acquire(ctx, outside, id, claimOf(wanted))
	if err != nil {
		return nil, err
	}
	p.limits = pod.BandwidthOf(wanted)
	if err := connect(outside, p, netns); err != nil {
		return nil, err
	}
	return p.addresses(), nil
}

// acquire reserves an address and c's ports for id and sees to the bridge. Once an address is taken the bridge stays, so
// the rest needs no lock.
func (b *Bridge) acquire(ctx context.Context, outside *netlink.Handle, id string, c claim) (port, error) {
	if err := os.MkdirAll(b.dir, layout.ModePrivate); err != nil {
		return port{}, err
	}
	lock, err := lockDir(ctx, b.dir, layout.ModePrivate, (*sys.Lock).Unlock)
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
		return port{}, fmt.Errorf("making the bridge: %w", hint(err))
	}
	if c.Addr, err = b.allocate(rec, id); err != nil {
		return port{}, err
	}
	if rec.Subnet6.IsValid() {
		c.Addr6 = counterpart(c.Addr, rec.Subnet6, rec.Subnet)
	}
	if err := b.hold(id, c); err != nil {
		return port{}, err
	}
	b.fenceIn(outside, rec, b.fencedOf(rec, c.Addr, id))
	return port{name: b.portName(id), bridge: index, mtu: rec.MTU, addr: c.Addr, subnet: rec.Subnet, addr6: c.Addr6, subnet6: rec.Subnet6}, nil
}

// ensure makes the bridge unless it is there and up; being up is its last step.
func (b *Bridge) ensure(outside *netlink.Handle, rec record) (record, int, error) {
	if rec.Bridge != "" {
		link, err := outside.LinkByName(rec.Bridge)
		if err == nil && link.Attrs().Flags&unix.IFF_UP != 0 {
			return rec, link.Attrs().Index, nil
		}
		if err != nil && !isNotFound(err) {
			return rec, 0, err
		}
		if err == nil { // begun, and cut off
			index, err := b.complete(outside, rec, link)
			return rec, index, err
		}
	}
	if err := b.removeStrays(outside, rec.Bridge); err != nil {
		return rec, 0, err
	}
	rec, err := b.choose(outside, rec)
	if err != nil {
		return rec, 0, err
	}
	// Before the bridge: one without a record is not ours.
	if err := b.save(rec); err != nil {
		return rec, 0, err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = rec.Bridge, rec.MTU
	// Fixed, because the kernel would change it with the ports, and pods keep the gateway's in a cache.
	attrs.HardwareAddr = b.hardwareAddr()
	link := &netlink.Bridge{LinkAttrs: attrs}
	if err := outside.LinkAdd(link); err != nil {
		return rec, 0, fmt.Errorf("adding link %s: %w", rec.Bridge, err)
	}
	if alias := b.alias(); alias != "" {
		if err := outside.LinkSetAlias(link, alias); err != nil {
			return rec, 0, fmt.Errorf("giving link %s its alias: %w", rec.Bridge, err)
		}
	}
	index, err := b.complete(outside, rec, link)
	return rec, index, err
}

// complete gives the bridge its address, turns forwarding and masquerading on and sees to who may send what.
func (b *Bridge) complete(outside *netlink.Handle, rec record, link netlink.Link) (int, error) {
	for _, subnet := range rec.subnets() {
		gateway := &netlink.Addr{IPNet: ipNet(gatewayOf(subnet), subnet.Bits()), Flags: noDetection(subnet.Addr())}
		if err := outside.AddrAdd(link, gateway); err != nil && !errors.Is(err, unix.EEXIST) {
			return 0, fmt.Errorf("giving it %s: %w", gateway.IPNet, err)
		}
		if err := forward(outside, subnet.Addr()); err != nil {
			b.log.Warn("cannot turn on forwarding: pods reach only each other and this machine", "subnet", subnet, "why", err)
		}
		if err := guard(rec.Bridge, subnet, b.open); err != nil {
			b.unmasked.Do(func() {
				b.log.Warn("cannot masquerade and guard with nftables: pods reach only each other and this machine", "why", err)
			})
		}
	}
	if err := b.refence(outside, rec); err != nil {
		b.sayUnfenced(err)
	}
	// A pod must not become the machine's router.
	if err := refuseRouters(rec.Bridge); err != nil {
		return 0, err
	}
	if err := letThrough(rec.Bridge); err != nil {
		b.blocked.Do(func() { b.log.Warn("a firewall may keep pods from reaching more than this machine", "why", err) })
	}
	if err := outside.LinkSetUp(link); err != nil {
		return 0, err
	}
	return link.Attrs().Index, nil
}

// Teardown removes id's link if it is still there and frees its address; with the last address go the
// bridge, the nftables table and the records, unless they are kept.
func (b *Bridge) Teardown(ctx context.Context, id string) error {
	if err := b.teardown(ctx, id, nil); err != nil {
		return fmt.Errorf("releasing the pod's network: %w", err)
	}
	return nil
}

// teardown releases what id has. With known it does so only if id is not known while nobody can take anything.
func (b *Bridge) teardown(ctx context.Context, id string, known func(id string) bool) error {
	outside, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("opening netlink: %w", err)
	}
	defer outside.Close()
	// The link goes first: whoever gets the address next must not meet it twice.
	if known == nil {
		if err := removeLink(outside, b.portName(id)); err != nil {
			return err
		}
	}
	lock, err := b.lockWhatIs(ctx, outside)
	if lock == nil || err != nil {
		return err
	}
	defer lock.Unlock()
	if known != nil {
		if known(id) {
			return nil
		}
		if err := removeLink(outside, b.portName(id)); err != nil {
			return err
		}
	}
	return b.releaseAll(outside, id)
}

// releaseAll frees id's ports and address, and removes the network after the last one. The caller holds the lock.
func (b *Bridge) releaseAll(outside *netlink.Handle, id string) error {
	if err := b.letGo(id); err != nil {
		return err
	}
	if err := b.release(id); err != nil {
		return err
	}
	if err := b.fenceOut(outside); err != nil || b.keep {
		return err
	}
	if idle, err := b.idle(); err != nil || !idle {
		return err
	}
	return b.dismantle(outside)
}

// dismantle removes all that the network consists of. The caller holds the lock.
func (b *Bridge) dismantle(outside *netlink.Handle) error {
	boot, err := b.boot()
	if err != nil {
		return err
	}
	rec, err := b.load()
	if err != nil {
		return err
	}
	// After a reboot the names in the record may be somebody else's.
	if rec.Bridge != "" && rec.Boot == boot {
		if err := b.remove(outside, rec.Bridge); err != nil {
			return err
		}
	}
	if err := b.removeStrays(outside, ""); err != nil {
		return err
	}
	return b.removeRecords()
}

// remove removes a bridge and all rules for it.
func (b *Bridge) remove(outside *netlink.Handle, bridge string) error {
	if err := removeLink(outside, bridge); err != nil {
		return err
	}
	if err := removeTables(bridge); err != nil {
		b.log.Debug("nftables tables not removed", "bridge", bridge, "why", err)
	}
	if err := removePassage(bridge); err != nil {
		b.log.Debug("rules in the machine's firewall not removed", "bridge", bridge, "why", err)
	}
	return nil
}

// hint adds what to do to an error that says that this machine does not let podrun make a bridge.
func hint(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w: podrun cannot make network devices here; a pod with hostNetwork: true needs none", err)
	}
	return err
}
