// Package agent is the wiring: it turns options into sources, runtime, relister, loop and their kin, and
// runs them as one. It is the only room that knows everybody, and it decides nothing about pods.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	goruntime "runtime"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/containerlog"
	"podrun.io/podrun/internal/event"
	"podrun.io/podrun/internal/gc"
	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/network"
	"podrun.io/podrun/internal/network/dns"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/probe"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/relist"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/sandbox"
	"podrun.io/podrun/internal/server"
	"podrun.io/podrun/internal/stats/disk"
	"podrun.io/podrun/internal/status"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/volume"
)

// Options are what serve, once and down have in common.
type Options struct {
	Dirs    layout.Dirs
	Connect ConnectOptions
	Sources SourceOptions
	Stdin   io.Reader
	// NodeName is the suffix of every pod's name, in lower case.
	NodeName     string
	RelistPeriod time.Duration
	// Events is auto, on or off: whether the runtime's event stream is listened to.
	Events string
	// MaxBackoff is the longest crash back-off.
	MaxBackoff time.Duration
	// ClusterDNS are the servers of pods with dnsPolicy ClusterFirst; none: the host's.
	ClusterDNS []string
	// ClusterDomain ends pods' full names.
	ClusterDomain string
	// CNIConfDir has the configuration of CNI's plugins, which are in CNIBinDirs; without any, podrun's own
	// bridge connects pods.
	CNIConfDir string
	CNIBinDirs []string
	// RouteToPods lets packets of other links reach any port of pods on podrun's own bridge.
	RouteToPods bool
	// PreferLocal starts pods from images that are present when those that are always pulled cannot be.
	PreferLocal bool
	// ImageDir has archives of images that are loaded at the start; empty: the root directory's.
	ImageDir string
	// LogRotation says when containers' logs are put away, and how many are kept.
	LogRotation containerlog.Rotation
	// Halt says how pods end when the machine shuts down.
	Halt HaltOptions
	// Garbage says which images that nobody uses are removed, and when a disk is too full.
	Garbage gc.Policy
	// Listen is where serve answers HTTP beside its socket.
	Listen server.ListenOptions
	// Notify is how serve tells a service manager how it is.
	Notify NotifyOptions
	// Hurry, once closed, has all that ends killed at once; may be nil.
	Hurry <-chan struct{}
	Log   *slog.Logger

	// observer hears how listing goes; may be nil.
	observer relist.Observer
	// locks are those of the pods that this process has; nil: they are made.
	locks *podLocks
	// backend is used in place of a containerd; for tests.
	backend backend
	// machine stands in for this machine, so that all runs in virtual time; nil: this one. For tests, beside backend.
	machine *machine
}

// machine is what serve and once read of the machine. Under one that is given nothing waits in the kernel: files are
// looked at from time to time, nobody is answered over HTTP, and the process's memory is left alone.
type machine struct {
	boot   string
	hostIP string
	node   v1.ResourceList
	// parallel is how many mutations go on at once.
	parallel int
	// wall is the wall clock, which may be set; nil: this process's.
	wall func() time.Time
	// dial connects to manifests' URLs; nil: the network.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	// published hears each status that is published; may be nil.
	published func(p *v1.Pod)
}

// readMachine reads this machine, unless another stands in for it.
func (o Options) readMachine() (machine, error) {
	if o.machine != nil {
		return *o.machine, nil
	}
	boot, err := sys.BootID()
	if err != nil {
		return machine{}, err
	}
	warnOfMachine(o.Log)
	return machine{boot: boot, hostIP: hostIP(o.Log), node: nodeResources(o), parallel: 2 * goruntime.NumCPU()}, nil
}

// backend is a runtime in all the roles of the port that the house needs.
type backend interface {
	runtime.Lister
	runtime.Notifier
	runtime.Sandboxes
	runtime.Containers
	runtime.Images
	runtime.Execer
	runtime.Data
	runtime.Layers
	// Store returns the pods' checkpoints.
	Store() *checkpoint.Store
	Sweep(ctx context.Context) error
}

// ErrUsage marks errors that the caller made: wrong options, manifests that cannot be used.
var ErrUsage = errors.New("usage")

// house is a connected podrun: everything but the sources of manifests.
type house struct {
	o       Options
	runtime backend
	conn    *Connection // nil where the runtime was given
	leave   func()      // lets others settle elsewhere
	network *network.Network
	// sandboxes are beneath runtime.
	sandboxes    *sandbox.Store
	relister     *relist.Relister
	tailer       *containerlog.Tailer
	volumes      *volume.Volumes
	names        *dns.Names
	prober       *probe.Prober
	events       *event.Recorder
	probeChanges chan pod.Key // from the prober to the loop
	loop         reconcile.Options
	halt         chan reconcile.Halt // to the loop
}

// neighbours are the other pods as p may call them. One that starts after others has to know them at once.
func (h *house) neighbours(p *v1.Pod) []pod.HostEntry {
	if p.Annotations[pod.AnnotationAfter] != "" {
		h.names.CatchUp()
	}
	return h.names.Of(p)
}

// open connects to the runtime and puts the rooms together.
func open(ctx context.Context, o Options, owner string, publisher reconcile.Publisher) (*house, error) {
	if err := makeDirs(o.Dirs.Modes()); err != nil {
		return nil, fmt.Errorf("making podrun's directories: %w", err)
	}
	m, err := o.readMachine()
	if err != nil {
		return nil, err
	}
	pods := network.New(network.Options{
		Dirs: o.Dirs, Log: o.Log, Keep: owner == ownerServe, ConfDir: o.CNIConfDir, BinDirs: o.CNIBinDirs,
		Open: o.RouteToPods,
	})
	store := sandbox.New(sandbox.Options{Dirs: o.Dirs, Log: o.Log, Network: pods, ClusterDomain: o.ClusterDomain, CgroupDriver: o.Connect.CgroupDriver})
	r, conn, leave, err := o.connect(ctx, m.boot, store)
	if err != nil {
		return nil, err
	}
	if conn != nil {
		if err := conn.migrate(ctx, owner); err != nil {
			leave()
			return nil, errors.Join(fmt.Errorf("adopting the pods of a former version of podrun: %w", err), conn.Close())
		}
	}
	if o.locks == nil {
		o.locks = newPodLocks(o.Dirs, cmp.Or(owner, commandDown))
	}
	o.locks.fresh = r.Store().Scan
	listing := relist.Options{Lister: r, Notifier: r, Period: o.RelistPeriod, Observer: o.observer, Log: o.Log}
	if o.Events == "off" {
		listing.Notifier = nil
	}
	h := &house{o: o, runtime: r, conn: conn, leave: leave, network: pods, sandboxes: store, relister: relist.New(listing), tailer: containerlog.New(containerlog.Options{Dirs: o.Dirs, Rotation: o.LogRotation, Unwatched: o.machine != nil, Log: o.Log})}
	h.events = event.New(o.Dirs, o.NodeName, o.Log)
	h.prober, h.probeChanges = probe.New(probe.Options{Exec: r, Events: h.events, Log: o.Log}), make(chan pod.Key)
	h.names = dns.New(dns.Options{Checkpoints: r.Store(), Boot: m.boot, ClusterDomain: o.ClusterDomain, HostIP: m.hostIP, Log: o.Log})
	h.volumes = volume.New(volume.Options{
		Dirs: o.Dirs, ClusterDNS: o.ClusterDNS, ClusterDomain: o.ClusterDomain, Neighbours: h.neighbours, Log: o.Log,
	})
	h.halt = make(chan reconcile.Halt)
	h.loop = reconcile.Options{
		Halt:      h.halt,
		Inspector: h.relister, Sandboxes: r, Containers: r, Images: r, Data: r, Owners: o.locks,
		Volumes: h.volumes, Disk: disk.New(o.Dirs, r), Logs: h.tailer, Prober: h.prober, Results: h.probeChanges, Hurry: o.Hurry, Publisher: overhearing{publisher, h.names, m.published}, Events: h.events,
		Troubled: troubled(publisher),
		Owner:    owner, Boot: m.boot, HostIP: m.hostIP, Node: m.node, Wall: m.wall, NodeLabels: nodeLabels(o), MaxBackoff: o.MaxBackoff, PreferLocal: o.PreferLocal, Parallel: m.parallel, Log: o.Log,
	}
	return h, nil
}

// End ends what may still go on though nobody waits for it, last of all in a process.
func End() { sys.EndPrograms() }

// warnOfMachine tells what of this machine keeps pods from what they are used to.
func warnOfMachine(log *slog.Logger) {
	if sys.EnforcesSELinux("/") {
		log.Warn("SELinux is enforced on this machine: containers without seLinuxOptions, and their volumes, get no labels; what the policy keeps from them, label by hand")
	}
	if hides, err := sys.RootHides(os.Getpid()); hides {
		log.Warn("podrun runs in a chroot: exec, also of probes and hooks, is refused in containers that are started there; enter the directory by pivot_root instead")
	} else if err != nil {
		log.Debug("it is not known whether this is a chroot", "why", err)
	}
}

// connect returns the runtime to use, and has settled there until leave.
func (o Options) connect(ctx context.Context, boot string, store *sandbox.Store) (r backend, c *Connection, leave func(), err error) {
	if o.backend != nil {
		return o.backend, nil, nil, nil
	}
	connect := o.Connect
	connect.Dirs, connect.Boot, connect.Log = o.Dirs, boot, o.Log
	connect.Store = checkpoint.NewStore(o.Dirs, o.Log)
	connect.Sandboxes, connect.ClusterDomain, connect.KeepLogs = store, o.ClusterDomain, o.Garbage.LogAge > 0
	connect.Address = Locate(connect)
	leave, err = settle(o.Dirs, binding{connect.Address, connect.Namespace, boot}, func() (bool, error) {
		present, err := presentSandboxes(connect.Store)
		return len(present) == 0, err
	})
	if err != nil {
		return nil, nil, nil, err
	}
	conn, err := Connect(ctx, connect)
	if err != nil {
		leave()
		return nil, nil, nil, err
	}
	return conn.Runtime, conn, leave, nil
}

func hostIP(log *slog.Logger) string {
	ip, err := network.HostIP()
	if err != nil {
		log.Debug("the node's address is not known", "why", err)
		return ""
	}
	return ip.String()
}

func (h *house) close() {
	if h.conn == nil {
		return
	}
	defer h.leave()
	if err := h.conn.Close(); err != nil {
		h.o.Log.Debug("disconnecting failed", "why", err)
	}
	if h.loop.Owner == ownerOnce {
		return // a serve beside it may keep the network
	}
	if err := h.network.Close(); err != nil {
		h.o.Log.Warn("the pods' network stays", "why", err)
	}
}

// sweep removes what an earlier run was cut off with and no list shows.
func (h *house) sweep(ctx context.Context) {
	if h.conn == nil {
		return
	}
	if err := h.runtime.Sweep(ctx); err != nil {
		h.o.Log.Warn("leftovers stay", "why", err)
	}
	if err := h.network.Mend(); err != nil {
		h.o.Log.Warn("pods may not be reached, or reach nobody", "why", err)
	}
	if err := status.Sweep(h.o.Dirs); err != nil {
		h.o.Log.Warn("leftovers stay", "why", err)
	}
}

// networkSweep is how often the network is released of sandboxes that are gone: what their plugins refused before may
// go by now.
const networkSweep = 5 * time.Minute

// sweepNetwork removes sandboxes that no checkpoint names, and releases what the network holds for them, now and then. It may take long,
// and nothing waits for it.
func (h *house) sweepNetwork(ctx context.Context) {
	for {
		if err := h.sweepLost(ctx); err != nil && ctx.Err() == nil {
			h.o.Log.Warn("the network of sandboxes that are gone is not released yet", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(networkSweep):
		}
	}
}

func (h *house) sweepLost(ctx context.Context) error {
	known, err := h.conn.Runtime.Retained(ctx)
	if err != nil {
		return err
	}
	return errors.Join(h.sandboxes.Sweep(ctx, known), h.network.SweepLost(ctx, known))
}

// run runs the loop on what feed sends until ctx ends. What the loop stands on ends after it.
func (h *house) run(ctx context.Context, feed func(context.Context, chan<- manifest.Desired)) {
	seen, err := beginSighting(h.o.Dirs)
	if err != nil {
		h.o.Log.Warn("get cannot tell how old a status is", "why", err)
	} else {
		defer seen.end()
	}
	beneath, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	events := make(chan relist.Event)
	desired := make(chan manifest.Desired)
	running.Go(func() { h.ended("relist", h.relister.Run(beneath, events)) })
	running.Go(func() { h.ended("probe", h.prober.Run(beneath, h.probeChanges)) })
	running.Go(func() { h.ended("events", h.events.Run(beneath)) })
	running.Go(func() { h.ended("logs", h.tailer.Run(beneath)) })
	running.Go(func() { h.ended("names", h.names.Run(beneath, h.volumes)) })
	if h.conn != nil {
		running.Go(func() { h.conn.keep(beneath) })
	}
	if seen != nil {
		running.Go(func() { seen.keep(beneath) })
	}
	if h.conn != nil {
		running.Go(func() { h.sweepNetwork(beneath) })
	}
	feeding, stopFeeding := context.WithCancel(ctx)
	running.Go(func() { feed(feeding, desired) })
	h.ended("loop", reconcile.NewLoop(h.loop).Run(ctx, desired, events))
	stopFeeding()
}

// ended reports an actor that ended otherwise than by being told to.
func (h *house) ended(actor string, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		h.o.Log.Error("ended unexpectedly", "actor", actor, "why", err)
	}
}

// there returns what is there, as far as it can be told: of a pod that hangs, that it is, and its manifest.
func (h *house) there(ctx context.Context) ([]pod.Observed, error) {
	all, err := h.runtime.List(ctx)
	if unknown := (*runtime.UnknownError)(nil); errors.As(err, &unknown) {
		return append(all, unknown.Pods...), nil
	}
	return all, err
}

// origins returns where the pods that are there were read, so that of two manifests for one pod the
// running one's stays chosen.
func (h *house) origins() (map[pod.Key]manifest.Origin, error) {
	all, err := h.runtime.Store().List()
	if err != nil {
		return nil, err
	}
	from := map[pod.Key]manifest.Origin{}
	for key, of := range all {
		from[key] = manifest.OriginOf(of[0].Pod)
	}
	return from, nil
}
