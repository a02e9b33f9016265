// Package agent wires the other packages together for the commands serve, once and down: it turns
// options into manifest sources, a runtime, a relister, the reconcile loop and the rest, and runs
// them. It is the only package that imports all of these. For diff it only reads (Diff).
//
// The package decides nothing: what happens to a pod is package plan's decision. The packages below
// it have one subject each, such as locks or the result of a run; none of them imports this one.
//
// Begin reading with Serve, Once or Down; all three call open, which builds an agent, and agent.run.
package agent

import (
	"context"
	"fmt"

	"podrun.io/podrun/internal/agent/connection"
	"podrun.io/podrun/internal/agent/directories"
	"podrun.io/podrun/internal/agent/node"
	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/agent/record"
	"podrun.io/podrun/internal/containerlog"
	"podrun.io/podrun/internal/event"
	"podrun.io/podrun/internal/network"
	"podrun.io/podrun/internal/network/dns"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/probe"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/relist"
	"podrun.io/podrun/internal/stats/disk"
	"podrun.io/podrun/internal/status"
	"podrun.io/podrun/internal/volume"
)

// agent is a podrun that is connected to a runtime: all parts except the manifest sources.
type agent struct {
	o Options
	role
	runtime      connection.Backend
	conn         *connection.Connection // nil with Options.backend
	network      *network.Network
	relister     *relist.Relister
	requests     *owner.Requests
	tailer       *containerlog.Tailer
	volumes      *volume.Volumes
	remount      chan struct{} // from volumes and the address to the loop
	address      *network.HostAddress
	names        *dns.Names
	prober       *probe.Prober
	events       *event.Recorder
	probeChanges chan pod.Key // from the prober to the loop
	loop         reconcile.Options
	halt         chan reconcile.Halt // to the loop
}

// role is in what the agents of serve, once and down differ when they are built.
type role struct {
	// owner is with whom pods are saved: owner.Serve, owner.Once, or "" for a down while no serve runs.
	owner string
	// locks are the owner locks of this process's pods.
	locks *owner.Locks
	// publisher receives the statuses, and troubled the failures of actions. troubled may be nil.
	publisher reconcile.Publisher
	troubled  func(pod.Key, error)
	// stuck receives why a pod can never start. May be nil.
	stuck func(pod.Key, error)
	// observer and probes receive measurements of the relister and of probes. They may be nil.
	observer relist.Observer
	probes   probe.Observer
}

// open connects to the runtime and builds an agent.
func open(ctx context.Context, o Options, as role) (*agent, error) {
	if err := directories.Make(o.Dirs.Modes()); err != nil {
		return nil, fmt.Errorf("making podrun's directories: %w", err)
	}
	m, err := o.readMachine()
	if err != nil {
		return nil, err
	}
	a := &agent{
		o: o, role: as, address: m.Address,
		probeChanges: make(chan pod.Key), halt: make(chan reconcile.Halt), remount: make(chan struct{}, 1),
	}
	a.requests = owner.NewRequests(o.Dirs, o.Log)
	if o.machine != nil {
		a.requests.Unwatched()
	}
	a.network = network.New(network.Options{
		Dirs: o.Dirs, Log: o.Log, Keep: as.owner == owner.Serve, ConfDir: o.CNIConfDir, BinDirs: o.CNIBinDirs,
		Open: o.RouteToPods,
	})
	if err := a.connect(ctx, &m); err != nil {
		return nil, err
	}
	r := a.runtime
	as.locks.OnAcquire(r.Store().Scan)
	listing := relist.Options{
		Lister: r, Notifier: r, Processes: m.processes, Period: o.RelistPeriod, Observer: as.observer, Log: o.Log,
	}
	if a.conn != nil {
		listing.Processes = &a.conn.Processes
	}
	if o.Events == "off" {
		listing.Notifier = nil
	}
	a.relister = relist.New(listing)
	a.tailer = containerlog.New(containerlog.Options{
		Dirs: o.Dirs, Rotation: o.LogRotation, Links: o.LogLinks, Unwatched: o.machine != nil, Log: o.Log,
	})
	a.events = event.New(o.Dirs, o.NodeName, o.Log)
	a.prober = probe.New(probe.Options{Exec: r, Events: a.events, Observer: as.probes, Log: o.Log})
	a.names = dns.New(dns.Options{
		Checkpoints: r.Store(), Boot: m.Boot, ClusterDomain: o.ClusterDomain, HostIP: m.Address.IP, Log: o.Log,
	})
	a.volumes = volume.New(volume.Options{
		Dirs: o.Dirs, ClusterDNS: o.ClusterDNS, ClusterDomain: o.ClusterDomain, Neighbours: a.names.AtStart,
		PluginsDir: o.Connect.PluginsDir, Machine: m.drivers, Log: o.Log,
	})
	a.volumes.CSI().OnChange(a.retry)
	a.loop = reconcile.Options{
		Halt: a.halt, Stuck: as.stuck, Requests: a.requests, Requested: a.requests.Changed, Remount: a.remount,
		Inspector: a.relister, Sandboxes: r, Containers: r, Images: r, Data: r, Owners: as.locks,
		Volumes: a.volumes, Disk: disk.New(o.Dirs, r), Logs: a.tailer, Prober: a.prober, Results: a.probeChanges,
		Hurry: o.Hurry, Publisher: record.Addresses{Publisher: as.publisher, Names: a.names, Also: m.published},
		Events: a.events, Troubled: as.troubled, Owner: as.owner, Boot: m.Boot, Booted: m.Booted,
		HostIP: m.Address.IP, ProbeIP: m.Address.ProbeIP, Node: m.Resources, Wall: m.wall,
		NodeLabels: node.Labels(o.NodeName, o.NodeLabels), Devices: m.devices,
		Refusal:    o.Sources.Policy.Refusal,
		MaxBackoff: o.MaxBackoff, PreferLocal: o.PreferLocal, Parallel: m.parallel, Log: o.Log,
	}
	return a, nil
}

// retry makes the loop try again what waited for a driver of volumes or for the machine's network.
func (a *agent) retry() {
	select {
	case a.remount <- struct{}{}:
	default:
	}
}

// connect connects to the runtime, and binds the run directory to it.
func (a *agent) connect(ctx context.Context, m *machine) (err error) {
	if a.runtime = a.o.backend; a.runtime != nil {
		return nil
	}
	o := a.o.Connect
	o.Dirs, o.Boot, o.Log = a.o.Dirs, m.Boot, a.o.Log
	o.Network, o.ClusterDomain, o.KeepLogs = a.network, a.o.ClusterDomain, a.o.Garbage.LogAge > 0
	o.Serves = a.owner == owner.Serve
	if a.conn, err = connection.OpenBound(ctx, o, a.owner == owner.Once); err == nil {
		a.runtime, m.devices = a.conn.Runtime, a.conn.Devices
	}
	return err
}

func (a *agent) close() {
	if a.conn == nil {
		return
	}
	if a.owner != owner.Once { // a serve at the same time as once may still use the network
		if err := a.network.Close(); err != nil {
			a.o.Log.Warn("removing the pod network failed", "err", err)
		}
	}
	if err := a.conn.Close(); err != nil {
		a.o.Log.Debug("closing the containerd connection failed", "err", err)
	}
}

// sweep removes what an interrupted run left behind and no list shows, and repairs the pod network.
func (a *agent) sweep(ctx context.Context) {
	if err := a.locks.Sweep(); err != nil {
		a.o.Log.Warn("removing leftover pod locks failed", "err", err)
	}
	if a.conn == nil {
		return
	}
	if err := a.runtime.Sweep(ctx); err != nil {
		a.o.Log.Warn("removing leftovers of an interrupted run failed", "err", err)
	}
	if err := a.network.Repair(); err != nil {
		a.o.Log.Warn("repairing the pod network failed", "err", err)
	}
	if err := status.Sweep(a.o.Dirs); err != nil {
		a.o.Log.Warn("removing leftover status files failed", "err", err)
	}
}
