// Package csi publishes volumes of CSI drivers for pods, as the kubelet does on its node: inline volumes
// (volumes[].csi), and those of PersistentVolumes, which it stages first. Drivers register by a socket, through package
// pluginregistry, and are called when a container that mounts such a volume starts, and when its pod is gone.
//
// What a driver has been called for is recorded before the call, so that the volume is unpublished whatever happens
// in between: podrun or the driver killed, the machine without power. A call that a driver does not answer blocks
// neither its pod's removal nor other pods: the record stays, and the driver is called again when it is back.
//
// The package mounts nothing itself, and does not make the mounts in containers.
//
// Begin reading at Drivers.Publish and Drivers.Release.
package csi

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
)

// callTimeout is how long a driver may take for a call, as in the kubelet.
const callTimeout = 2 * time.Minute

// Options configure Drivers.
type Options struct {
	Dirs layout.Dirs
	// Dir is where drivers look for the kubelet: /var/lib/kubelet. Empty: no driver can register.
	Dir string
	// Own gives what is mounted at a path to the pod's fsGroup, if it has one. May be nil.
	Own func(ctx context.Context, p *v1.Pod, path string) error
	// Machine is where drivers are called; nil: this machine.
	Machine *Machine
	Log     *slog.Logger
}

// Drivers are the CSI drivers of a machine, and the volumes that they publish. Its methods may be called
// concurrently.
type Drivers struct {
	*connections
	o       Options
	records *store
	stages  *stages
	// attention makes Run look at the records; its capacity is 1.
	attention chan struct{}
	unread    error // which records Run cannot read

	mu      sync.Mutex
	calls   map[string]*call   // in progress, by the record's file
	late    map[string]int     // the calls for which a caller has stopped waiting, by driver
	renewed map[string]Request // the requests that are to be made again, by the record's file
	changed []func()
}

// New returns Drivers. It calls and changes nothing yet.
func New(o Options) *Drivers {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Machine == nil {
		o.Machine = &thisMachine
	}
	records := newStore(o.Dirs)
	records.kindOn = o.Machine.KindOn
	d := &Drivers{
		o: o, records: records, stages: newStages(o.Dir, records), attention: make(chan struct{}, 1),
		calls: map[string]*call{}, renewed: map[string]Request{}, late: map[string]int{},
	}
	d.connections = &connections{
		dirs: o.Dirs, dir: o.Dir, dial: o.Machine.Dial, change: d.change, log: o.Log, drivers: map[string]*driver{},
		refused: map[string]error{},
	}
	return d
}

// OnChange makes f be called after a driver has registered or can be called again, and after a call ended for which
// its caller has not waited. f does not block.
func (d *Drivers) OnChange(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed = append(d.changed, f)
}

// change calls what OnChange has set, and Run.
func (d *Drivers) change() {
	d.mu.Lock()
	all := slices.Clone(d.changed)
	d.mu.Unlock()
	for _, f := range all {
		f()
	}
	d.attend()
}

// attend makes Run look at the records.
func (d *Drivers) attend() {
	select {
	case d.attention <- struct{}{}:
	default:
	}
}
