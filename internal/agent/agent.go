// Package agent wires the other packages together for the commands serve, once and down: it turns
// options into manifest sources, a runtime, a relister, the reconcile loop and the rest, and runs
// them. It is the only package that imports all of these.
//
// The package also owns the locks: the one of the run directory, and the owner lock per pod that
// gives a pod to one process (podlock.go). It does not decide what happens to a pod: package plan
// does.
//
// Begin reading with Serve, Once or Down; all three call open, which builds a house, and house.run.
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
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/containerlog"
	"podrun.io/podrun/internal/event"
	"podrun.io/podrun/internal/gc"
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

// Options are the options that serve, once and down have in common.
type Options struct {
	Dirs    layout.Dirs
	Connect ConnectOptions
	Sources SourceOptions
	Stdin   io.Reader
	// NodeName is the suffix of every pod name, in lower case.
	NodeName     string
	RelistPeriod time.Duration
	// Events is "auto", "on" or "off": whether to subscribe to the runtime's event stream.
	Events string
	// MaxBackoff is the longest crash back-off.
	MaxBackoff time.Duration
	// ClusterDNS are the DNS servers of pods with the dnsPolicy ClusterFirst. If empty, they use
	// the host's.
	ClusterDNS []string
	// ClusterDomain is the suffix of the pods' fully qualified names.
	ClusterDomain string
	// CNIConfDir has the configuration of the CNI plugins, whose binaries are in CNIBinDirs.
	// Without a configuration podrun's own bridge connects the pods.
	CNIConfDir string
	CNIBinDirs []string
	// RouteToPods allows packets from other links to all ports of pods on podrun's own bridge.
	RouteToPods bool
	// PreferLocal starts a pod from a local image if an image that is always pulled cannot be
	// pulled.
	PreferLocal bool
	// ImageDir has image archives that are loaded at the start. Empty: the directory below the root
	// directory.
	ImageDir string
	// LogRotation says when container logs are rotated and how many files are kept.
	LogRotation containerlog.Rotation
	// Halt says how pods are terminated when the machine shuts down.
	Halt HaltOptions
	// Garbage says when unused images are removed and when a disk counts as too full.
	Garbage gc.Policy
	// Listen is where serve accepts HTTP requests besides its socket.
	Listen server.ListenOptions
	// Notify is how serve reports its state to a service manager.
	Notify NotifyOptions
	// Hurry, once closed, makes every termination a kill without a grace period. May be nil.
	Hurry <-chan struct{}
	Log   *slog.Logger

	// observer receives measurements of the relister. May be nil.
	observer relist.Observer
	// locks are the owner locks of this process's pods. nil: they are created.
	locks *podLocks
	// backend replaces containerd, for tests.
	backend backend
	// machine replaces this machine, so that everything runs in virtual time. nil: this machine.
	// For tests, together with backend.
	machine *machine
}

// machine is what serve and once read of the machine. With a replaced machine nothing blocks in the
// kernel: files are polled instead of watched, no HTTP server runs, and the memory of the process
// is not tuned.
type machine struct {
	boot   string
	hostIP string
	node   v1.ResourceList
	// parallel is the maximum number of parallel mutations.
	parallel int
	// wall is the wall clock, which may be set. nil: time.Now.
	wall func() time.Time
	// dial connects to manifest URLs. nil: over the network.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	// published is called with each status that is published. May be nil.
	published func(p *v1.Pod)
}

// readMachine returns the values of this machine, or those of Options.machine if it is set.
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

// backend is a runtime with all the interfaces that a house uses.
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

// ErrUsage marks errors of the caller: wrong options, or manifests that cannot be used.
var ErrUsage = errors.New("usage")

// house is a podrun that is connected to a runtime: all parts except the manifest sources.
type house struct {
	o       Options
	runtime backend
	conn    *Connection // nil with Options.backend
	leave   func()      // releases the binding
	network *network.Network
	// sandboxes are the sandboxes that runtime uses.
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

// neighbours returns the host entries of other pods for p. A pod that starts after others must know
// them at once.
func (h *house) neighbours(p *v1.Pod) []pod.HostEntry {
	if p.Annotations[pod.AnnotationAfter] != "" {
		h.names.CatchUp()
	}
	return h.names.Of(p)
}

// open connects to the runtime and builds a house. owner is ownerServe, ownerOnce or "" (down while
// no serve runs).
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
	store := sandbox.New(sandbox.Options{
		Dirs: o.Dirs, Log: o.Log, Network: pods, ClusterDomain: o.ClusterDomain, CgroupDriver: o.Connect.CgroupDriver,
	})
	r, conn, leave, err := o.connect(ctx, m.boot, store)
	if err != nil {
		return nil, err
	}
	if conn != nil {
		if err := conn.migrate(ctx, owner); err != nil {
			leave()
			return nil, errors.Join(
				fmt.Errorf("adopting the pods of a former version of podrun: %w", err),
				conn.Close(),
			)
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
	h := &house{
		o: o, runtime: r, conn: conn, leave: leave, network: pods, sandboxes: store, relister: relist.New(listing),
		tailer: containerlog.New(containerlog.Options{
			Dirs: o.Dirs, Rotation: o.LogRotation, Unwatched: o.machine != nil, Log: o.Log,
		}),
	}
	h.events = event.New(o.Dirs, o.NodeName, o.Log)
	h.prober, h.probeChanges = probe.New(probe.Options{Exec: r, Events: h.events, Log: o.Log}), make(chan pod.Key)
	h.names = dns.New(dns.Options{
		Checkpoints: r.Store(), Boot: m.boot, ClusterDomain: o.ClusterDomain, HostIP: m.hostIP, Log: o.Log,
	})
	h.volumes = volume.New(volume.Options{
		Dirs: o.Dirs, ClusterDNS: o.ClusterDNS, ClusterDomain: o.ClusterDomain, Neighbours: h.neighbours, Log: o.Log,
	})
	h.halt = make(chan reconcile.Halt)
	h.loop = reconcile.Options{
		Halt:      h.halt,
		Inspector: h.relister, Sandboxes: r, Containers: r, Images: r, Data: r, Owners: o.locks,
		Volumes: h.volumes, Disk: disk.New(o.Dirs, r), Logs: h.tailer, Prober: h.prober, Results: h.probeChanges,
		Hurry: o.Hurry, Publisher: overhearing{publisher, h.names, m.published}, Events: h.events,
		Troubled: troubled(publisher),
		Owner:    owner, Boot: m.boot, HostIP: m.hostIP, Node: m.node, Wall: m.wall, NodeLabels: nodeLabels(o),
		MaxBackoff: o.MaxBackoff, PreferLocal: o.PreferLocal, Parallel: m.parallel, Log: o.Log,
	}
	return h, nil
}

// End kills the programs that this process still runs although nothing waits for them any more.
// Call it last in a process.
func End() { sys.EndPrograms() }

// warnOfMachine logs properties of this machine that limit what pods can do.
func warnOfMachine(log *slog.Logger) {
	if sys.EnforcesSELinux("/") {
		log.Warn("SELinux is enforcing: containers without seLinuxOptions and their volumes get no labels; " +
			"label by hand the files to which the policy denies access")
	}
	if hides, err := sys.RootHides(os.Getpid()); hides {
		log.Warn("podrun runs in a chroot: exec, including probes and hooks, is refused in containers started there; " +
			"use pivot_root instead of chroot")
	} else if err != nil {
		log.Debug("checking for a chroot failed", "err", err)
	}
}

// connect returns the runtime to use. It binds the run directory to that containerd until leave is
// called. c and leave are nil with Options.backend.
func (o Options) connect(
	ctx context.Context, boot string, store *sandbox.Store,
) (r backend, c *Connection, leave func(), err error) {
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
		log.Debug("reading the node's address failed", "err", err)
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
		h.o.Log.Debug("closing the containerd connection failed", "err", err)
	}
	if h.loop.Owner == ownerOnce {
		return // a serve at the same time may still use the network
	}
	if err := h.network.Close(); err != nil {
		h.o.Log.Warn("removing the pod network failed", "err", err)
	}
}

// sweep removes what an interrupted run left behind and no list shows, and repairs the pod network.
func (h *house) sweep(ctx context.Context) {
	if h.conn == nil {
		return
	}
	if err := h.runtime.Sweep(ctx); err != nil {
		h.o.Log.Warn("removing leftovers of an interrupted run failed", "err", err)
	}
	if err := h.network.Repair(); err != nil {
		h.o.Log.Warn("repairing the pod network failed", "err", err)
	}
	if err := status.Sweep(h.o.Dirs); err != nil {
		h.o.Log.Warn("removing leftover status files failed", "err", err)
	}
}

// networkSweep is how often the network resources of removed sandboxes are released: CNI plugins
// that refused a release before may accept it later.
const networkSweep = 5 * time.Minute

// sweepNetwork periodically removes sandboxes that no checkpoint names and releases their network
// resources, until ctx ends. A pass may take long; nothing waits for it.
func (h *house) sweepNetwork(ctx context.Context) {
	for {
		if err := h.sweepLost(ctx); err != nil && ctx.Err() == nil {
			h.o.Log.Warn("removing lost sandboxes or their network resources failed; retrying later", "err", err)
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

// run runs the loop with the desired sets from feed until ctx ends. The parts that the loop depends
// on are stopped after it.
func (h *house) run(ctx context.Context, feed func(context.Context, chan<- manifest.Desired)) {
	seen, err := beginSighting(h.o.Dirs)
	if err != nil {
		h.o.Log.Warn("podrun get cannot show the age of statuses", "err", err)
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

// ended logs that an actor (a part with its own goroutine) ended although it was not cancelled.
func (h *house) ended(actor string, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		h.o.Log.Error("actor ended unexpectedly", "actor", actor, "err", err)
	}
}

// there returns the pods on the machine as far as they can be inspected. For a pod that hangs, the
// result has only the facts that it exists and which manifest it runs.
func (h *house) there(ctx context.Context) ([]pod.Observed, error) {
	all, err := h.runtime.List(ctx)
	if unknown := (*runtime.UnknownError)(nil); errors.As(err, &unknown) {
		return append(all, unknown.Pods...), nil
	}
	return all, err
}

// origins returns where the manifests of the pods on the machine were read, so that of two
// manifests for one pod the running one stays chosen.
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
