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

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pluginregistry"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/pace"
	"podrun.io/podrun/internal/sys/socket"
	"podrun.io/podrun/internal/volume/csi/wire"
	"podrun.io/podrun/internal/volume/mounts"
)

const (
	// redial is how often a driver whose connection was lost is dialled.
	redial = time.Second
	// mostNodeID is CSI's limit for a driver's name for a machine, in bytes.
	mostNodeID = 256
	// mostRefused is how many refused drivers are remembered: whoever may register must not fill the memory.
	mostRefused = 128
)

// Machine is where drivers are called, and where it is seen what they have mounted.
type Machine struct {
	// Dial returns a connection to the driver at a socket.
	Dial func(socket string) (Conn, error)
	// KindOn returns the type of the file system that is mounted on a directory; "" if none is. It does not access
	// that.
	KindOn func(dir string) (string, error)
}

// Conn is a connection to a driver, as *grpc.ClientConn is.
type Conn interface {
	grpc.ClientConnInterface
	GetState() connectivity.State
	WaitForStateChange(ctx context.Context, source connectivity.State) bool
	Connect()
	ResetConnectBackoff()
	Close() error
}

// thisMachine is the one on which podrun runs.
var thisMachine = Machine{
	Dial:   func(at string) (Conn, error) { return socket.Client(at) },
	KindOn: mounts.KindOn,
}

// connections are the drivers that have registered.
type connections struct {
	dirs layout.Dirs
	dir  string // Options.Dir
	dial func(socket string) (Conn, error)
	// change is called after a driver has registered or can be called again.
	change func()
	log    *slog.Logger

	mu      sync.Mutex
	drivers map[string]*driver // by name
	refused map[string]error   // why drivers were refused, by name
}

// driver is a driver that has registered.
type driver struct {
	endpoint string
	conn     Conn
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

// driver returns the driver with a name.
func (c *connections) driver(name string) (*driver, error) {
	if c.dir == "" {
		return nil, &runtime.PermanentError{
			Fix: "run podrun serve with --plugins, and the driver",
			Err: fmt.Errorf("no CSI driver %s can register: podrun runs without --plugins", name),
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	with := c.drivers[name]
	if err := c.refused[name]; with == nil && err != nil {
		return nil, fmt.Errorf("the CSI driver %s was refused: %w", name, err)
	}
	if with == nil {
		return nil, fmt.Errorf("the CSI driver %s has not registered", name)
	}
	if !with.connected {
		return nil, fmt.Errorf("the CSI driver %s does not answer at %s any more, since %s: is it running?",
			name, with.endpoint, with.lost.Format(time.RFC3339))
	}
	return with, nil
}

// registered returns the driver with a name, whether or not it can be called; nil if there is none.
func (c *connections) registered(name string) *driver {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.drivers[name]
}

// Register implements pluginregistry.Handler. It asks the driver for the machine's name and capabilities.
func (c *connections) Register(ctx context.Context, name, endpoint string, versions []string) error {
	if why := pod.CSIDriverName(name); len(why) > 0 {
		return fmt.Errorf("%w: its name %q: %s", pluginregistry.ErrRefused, name, strings.Join(why, "; "))
	}
	err := c.register(ctx, name, endpoint, versions)
	c.mu.Lock()
	delete(c.refused, name)
	is := errors.Is(err, pluginregistry.ErrRefused) && len(c.refused) < mostRefused
	if is {
		c.refused[name] = err
	}
	c.mu.Unlock()
	if is {
		c.change() // who waits for it says why
	}
	return err
}

// register is Register for a driver whose name is one.
func (c *connections) register(ctx context.Context, name, endpoint string, versions []string) error {
	if !slices.ContainsFunc(versions, isVersion1) {
		return fmt.Errorf("%w: its versions are %v, and 1.x are those that can be used", pluginregistry.ErrRefused, versions)
	}
	endpoint, err := pluginregistry.Beneath(c.dir, endpoint)
	if err != nil {
		return err
	}
	conn, err := c.dial(endpoint)
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
	c.mu.Lock()
	former := c.drivers[name]
	c.drivers[name] = with
	c.mu.Unlock()
	if former != nil {
		former.end()
	}
	go c.watch(watching, name, with)
	c.change()
	c.write()
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
func (c *connections) Deregister(name, endpoint string) bool {
	c.mu.Lock()
	r := c.drivers[name]
	if r == nil || r.endpoint != filepath.Clean(endpoint) {
		c.mu.Unlock()
		return false
	}
	delete(c.drivers, name)
	c.mu.Unlock()
	r.end()
	c.write()
	return true
}

// watch keeps the connection to a driver, so that its return is noticed: at once, but if it ends one after another once
// in redial, for who waits for a volume is woken each time.
func (c *connections) watch(ctx context.Context, name string, r *driver) {
	dials := pace.Pace{AtOnce: 1, Every: redial}
	for ctx.Err() == nil {
		state := r.conn.GetState()
		if state == connectivity.Idle { // it has ended the connection
			c.connected(name, r, false)
			if dials.Wait(ctx) != nil {
				return
			}
			r.conn.Connect()
		}
		ready := state == connectivity.Ready
		if ready {
			r, ready = again(ctx, c, name, r)
		}
		c.connected(name, r, ready)
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
func again(ctx context.Context, c *connections, name string, r *driver) (now *driver, ready bool) {
	c.mu.Lock()
	here, current := r.connected, c.drivers[name] == r
	c.mu.Unlock()
	if here || !current {
		return r, true
	}
	now = &driver{endpoint: r.endpoint, conn: r.conn, stop: r.stop, lost: r.lost}
	if err := now.ask(ctx); err != nil {
		c.log.Warn("a CSI driver that is back does not say what it is", "driver", name, "err", err)
		return r, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.drivers[name] != r {
		return r, true // another one has registered meanwhile
	}
	c.drivers[name] = now
	return now, true
}

// connected records whether a driver can be called.
func (c *connections) connected(name string, r *driver, is bool) {
	c.mu.Lock()
	changed := c.drivers[name] == r && r.connected != is
	if r.connected = is; is {
		r.lost = time.Time{}
	} else if changed {
		r.lost = time.Now()
	}
	c.mu.Unlock()
	if !changed {
		return
	}
	c.log.Info("the connection to a CSI driver changed", "driver", name, "connected", is)
	if is {
		c.change()
	}
	c.write()
}

// write writes down which drivers there are, for commands.
func (c *connections) write() {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := []Driver{}
	for _, name := range slices.Sorted(maps.Keys(c.drivers)) {
		r := c.drivers[name]
		all = append(all, Driver{
			Name: name, Socket: r.endpoint, Connected: r.connected, NodeID: r.node, Lost: r.lost,
		})
	}
	text, err := json.Marshal(all)
	if err == nil {
		err = sys.WriteFile(layout.CSIDrivers(c.dirs), text, 0o600)
	}
	if err != nil {
		c.log.Warn("podrun get plugins cannot show the CSI drivers", "err", err)
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

// close ends the connections to the drivers.
func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.drivers {
		r.end()
	}
}
