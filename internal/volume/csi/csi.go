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
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pluginregistry"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/pace"
	"podrun.io/podrun/internal/sys/socket"
	"podrun.io/podrun/internal/volume/csi/wire"
)

const (
	// callTimeout is how long a driver may take for a call, as in the kubelet.
	callTimeout = 2 * time.Minute
	// redial is how often a driver whose connection was lost is dialled.
	redial = time.Second
	// mostNodeID is CSI's limit for a driver's name for a machine, in bytes.
	mostNodeID = 256
)

// Options configure Drivers.
type Options struct {
	Dirs layout.Dirs
	// Dir is where drivers look for the kubelet: /var/lib/kubelet. Empty: no driver can register.
	Dir string
	// Own gives what is mounted at a path to the pod's fsGroup, if it has one. May be nil.
	Own func(ctx context.Context, p *v1.Pod, path string) error
	Log *slog.Logger
}

// Drivers are the CSI drivers of a machine, and the volumes that they publish. Its methods may be called
// concurrently.
type Drivers struct {
	o       Options
	records *store
	stages  *stages
	// attention makes Run look at the records; its capacity is 1.
	attention chan struct{}
	unread    error // which records Run cannot read

	mu      sync.Mutex
	drivers map[string]*driver
	calls   map[string]*call   // in progress, by the record's file
	late    map[string]int     // the calls for which a caller has stopped waiting, by driver
	renewed map[string]Request // the requests that are to be made again, by the record's file
	changed []func()
}

// driver is a driver that has registered.
type driver struct {
	endpoint string
	conn     *grpc.ClientConn
	stop     context.CancelFunc // ends the goroutine that watches the connection
	node     string             // the driver's name for this machine
	// can are the node's capabilities.
	can       map[wire.Capability]bool
	connected bool
	lost      time.Time // when the connection ended; zero while there is one
}

// Driver is a driver, for people.
type Driver struct {
	Name      string `json:"name"`
	Socket    string `json:"socket"`
	Connected bool   `json:"connected"`
	// NodeID is the driver's name for this machine.
	NodeID string `json:"nodeID,omitempty"`
	// Lost is when the connection ended; zero while there is one.
	Lost time.Time `json:"lost,omitzero"`
}

// New returns Drivers. It calls and changes nothing yet.
func New(o Options) *Drivers {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	records := newStore(o.Dirs)
	return &Drivers{
		o: o, records: records, stages: newStages(o.Dir, records), attention: make(chan struct{}, 1),
		drivers: map[string]*driver{}, calls: map[string]*call{}, renewed: map[string]Request{}, late: map[string]int{},
	}
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

// Register implements pluginregistry.Handler. It asks the driver for the machine's name and capabilities.
func (d *Drivers) Register(ctx context.Context, name, endpoint string, versions []string) error {
	if why := pod.CSIDriverName(name); len(why) > 0 {
		return fmt.Errorf("%w: its name %q: %s", pluginregistry.ErrRefused, name, strings.Join(why, "; "))
	}
	if !slices.ContainsFunc(versions, isVersion1) {
		return fmt.Errorf("%w: its versions are %v, and 1.x are those that can be used", pluginregistry.ErrRefused, versions)
	}
	endpoint, err := pluginregistry.Beneath(d.o.Dir, endpoint)
	if err != nil {
		return err
	}
	conn, err := socket.Client(endpoint)
	if err != nil {
		return err
	}
	with := &driver{endpoint: endpoint, conn: conn, connected: true}
	if err := with.ask(ctx, grpc.WaitForReady(true)); err != nil {
		_ = conn.Close()
		return err
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	with.stop = stop
	d.mu.Lock()
	former := d.drivers[name]
	d.drivers[name] = with
	d.mu.Unlock()
	if former != nil {
		former.end()
	}
	go d.watch(watching, name, with)
	d.change()
	d.write()
	return nil
}

// isVersion1 reports whether a version of the interface that a driver names is 1.x.
func isVersion1(version string) bool {
	return strings.HasPrefix(strings.TrimPrefix(version, "v"), "1.")
}

// ask asks the driver what it is. It may register before it listens: the kubelet waits for it too.
func (r *driver) ask(ctx context.Context, how ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	info, err := wire.Invoke(ctx, r.conn, "NodeGetInfo", nil, how...)
	if err == nil {
		r.node, err = info.NodeID()
	}
	if err != nil {
		return fmt.Errorf("NodeGetInfo: %w", err)
	}
	if len(r.node) > mostNodeID {
		return fmt.Errorf("NodeGetInfo: its name for this machine has %d bytes, and CSI allows %d", len(r.node), mostNodeID)
	}
	can, err := wire.Invoke(ctx, r.conn, "NodeGetCapabilities", nil)
	if err == nil {
		r.can, err = can.Capabilities()
	}
	if err != nil {
		return fmt.Errorf("NodeGetCapabilities: %w", err)
	}
	return nil
}

// end ends the connection to a driver.
func (r *driver) end() {
	r.stop()
	_ = r.conn.Close()
}

// Deregister implements pluginregistry.Handler. What the driver has published stays.
func (d *Drivers) Deregister(name, endpoint string) bool {
	d.mu.Lock()
	r := d.drivers[name]
	if r == nil || r.endpoint != filepath.Clean(endpoint) {
		d.mu.Unlock()
		return false
	}
	delete(d.drivers, name)
	d.mu.Unlock()
	r.end()
	d.write()
	return true
}

// watch keeps the connection to a driver, so that its return is noticed: at once, but if it ends one after another once
// in redial, for who waits for a volume is woken each time.
func (d *Drivers) watch(ctx context.Context, name string, r *driver) {
	dials := pace.Pace{AtOnce: 1, Every: redial}
	for ctx.Err() == nil {
		state := r.conn.GetState()
		if state == connectivity.Idle { // it has ended the connection
			d.connected(name, r, false)
			if dials.Wait(ctx) != nil {
				return
			}
			r.conn.Connect()
		}
		ready := state == connectivity.Ready
		if ready {
			r, ready = again(ctx, d, name, r)
		}
		d.connected(name, r, ready)
		wait, cancel := ctx, context.CancelFunc(func() {})
		if state == connectivity.TransientFailure || state == connectivity.Ready && !ready {
			wait, cancel = context.WithTimeout(ctx, redial)
		}
		r.conn.WaitForStateChange(wait, state)
		cancel()
		if state == connectivity.TransientFailure {
			r.conn.ResetConnectBackoff()
		}
	}
}

// again asks a driver that has been away what it is: another version of it may listen at its socket by now, and nobody
// has to register that. It returns the driver with its present answers, and whether it can be called.
func again(ctx context.Context, d *Drivers, name string, r *driver) (now *driver, ready bool) {
	d.mu.Lock()
	here, current := r.connected, d.drivers[name] == r
	d.mu.Unlock()
	if here || !current {
		return r, true
	}
	now = &driver{endpoint: r.endpoint, conn: r.conn, stop: r.stop, lost: r.lost}
	if err := now.ask(ctx); err != nil {
		d.o.Log.Warn("a CSI driver that is back does not say what it is", "driver", name, "err", err)
		return r, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.drivers[name] != r {
		return r, true // another one has registered meanwhile
	}
	d.drivers[name] = now
	return now, true
}

// connected records whether a driver can be called.
func (d *Drivers) connected(name string, r *driver, is bool) {
	d.mu.Lock()
	changed := d.drivers[name] == r && r.connected != is
	if r.connected = is; is {
		r.lost = time.Time{}
	} else if changed {
		r.lost = time.Now()
	}
	d.mu.Unlock()
	if !changed {
		return
	}
	d.o.Log.Info("the connection to a CSI driver changed", "driver", name, "connected", is)
	if is {
		d.change()
	}
	d.write()
}

// write writes down which drivers there are, for commands.
func (d *Drivers) write() {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := []Driver{}
	for _, name := range slices.Sorted(maps.Keys(d.drivers)) {
		r := d.drivers[name]
		all = append(all, Driver{
			Name: name, Socket: r.endpoint, Connected: r.connected, NodeID: r.node, Lost: r.lost,
		})
	}
	text, err := json.Marshal(all)
	if err == nil {
		err = sys.WriteFile(layout.CSIDrivers(d.o.Dirs), text, 0o600)
	}
	if err != nil {
		d.o.Log.Warn("podrun get plugins cannot show the CSI drivers", "err", err)
	}
}

// Read returns the drivers that serve knows, or knew last, by name.
func Read(dirs layout.Dirs) ([]Driver, error) {
	var all []Driver
	text, err := os.ReadFile(layout.CSIDrivers(dirs))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("reading which CSI drivers there are: %w", err)
	}
	return all, nil
}
