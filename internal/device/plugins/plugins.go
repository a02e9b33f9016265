// Package plugins is a node's side of Kubernetes' device plugins (API v1beta1), of which the kubelet's device
// manager is the original: it accepts their registration, follows their lists of devices, and asks them for
// what a container needs to use a device. It does not say which pod has which device; that does package device.
//
// A plugin is a server at a socket in the directory device-plugins. It is not lost with podrun: its socket is
// remembered until the machine's next start, and called again at once. Another socket at the same path is another
// plugin's, and has only what registers by it: one device must not be given out as two resources.
//
// Begin reading at Manager.Register and Manager.follow.
package plugins

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podrun.io/podrun/internal/device"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys/pace"
	"podrun.io/podrun/internal/sys/socket"
)

const (
	// dialTimeout is how long a plugin that registers may take to be reached and to say its options, as in
	// the kubelet.
	dialTimeout = 10 * time.Second
	// retry is how often a plugin whose connection was lost is called.
	retry = time.Second
	// graceOfLost is how long the devices of a plugin that is gone count as unhealthy ones. After that the
	// resource is forgotten, as by the kubelet.
	graceOfLost = 5 * time.Minute
	// mostResources is how many resources plugins may have, and mostDevices how many devices all of them together:
	// a plugin in a container of its own must not fill the machine's memory.
	mostResources = 128
	mostName      = 512
	mostDevices   = 50_000
	// mostIDs is how many bytes the IDs of all devices together may have, and mostList how many a list may have.
	mostIDs  = 1 << 20
	mostList = 2 * mostIDs
	// mostNodes is how many NUMA nodes of a device are kept, and mostNode the largest: more than any machine has.
	mostNodes = 16
	mostNode  = 1 << 12
	// What is known is written down so often at once, and then once in a while.
	writesAtOnce   = 20
	writesInterval = time.Second
)

// Options configure a Manager. All are required.
type Options struct {
	// Dir is where the plugins' sockets are: /var/lib/kubelet/device-plugins.
	Dir string
	// File remembers the plugins' sockets for the next podrun.
	File string
	// Reserved are resources that no plugin may register.
	Reserved func(v1.ResourceName) bool
	Log      *slog.Logger
}

// Manager is in contact with the device plugins of a machine. Its methods may be called concurrently.
type Manager struct {
	v1beta1.UnimplementedRegistrationServer
	o             Options
	listener      *socket.Listener
	registrations pace.Pace
	writes        pace.Pace

	mu        sync.Mutex
	run       context.Context // of Run; nil before
	running   sync.WaitGroup
	resources map[v1.ResourceName]*resource
	changed   []func()
	unwritten bool // what is known is about to be written down
}

// resource is what is known of a resource and its plugin.
type resource struct {
	plugin *plugin
	// devices are nil before the first list.
	devices map[string]device.Plugged
	// lost is when the connection to the plugin ended; zero while there is one.
	lost time.Time
	// registrations is how often a plugin of it has registered.
	registrations int
}

// plugin is a plugin at a socket.
type plugin struct {
	socket  string
	is      socket.Identity // of the socket that has registered
	options *v1beta1.DevicePluginOptions
	client  v1beta1.DevicePluginClient
	conn    *grpc.ClientConn
	// stop ends the goroutine that follows its list.
	stop context.CancelFunc
	// ended: its socket in plugins_registry has been removed, and it is not called any more.
	ended bool
}

// OnChange makes f be called after the devices that there are, or their health, have changed. f does not block.
func (m *Manager) OnChange(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changed = append(m.changed, f)
}

// change writes down what is known, and calls what OnChange has set.
func (m *Manager) change() {
	m.mu.Lock()
	pending := m.unwritten
	m.unwritten = true
	m.mu.Unlock()
	if !pending {
		if wait := m.writes.Next(); wait <= 0 {
			m.remember()
		} else { // somebody may change it without end
			time.AfterFunc(wait, m.remember)
		}
	}
	m.mu.Lock()
	all := slices.Clone(m.changed)
	m.mu.Unlock()
	for _, f := range all {
		f()
	}
}

// recall begins to call the plugins that the last podrun knew.
func (m *Manager) recall() {
	all, err := read(m.o.File)
	if err != nil {
		m.o.Log.Warn("device plugins of the last podrun are not known; they are used when they register", "err", err)
		return
	}
	m.mu.Lock()
	for name, was := range all {
		if m.resources[name] != nil || m.allowed(name) != nil {
			continue
		}
		// Its devices are what they were until it answers, or does not.
		p := &plugin{socket: was.Socket, is: was.Is, ended: was.Ended}
		m.resources[name] = &resource{p, was.Devices, was.Lost, was.Registrations}
		m.start(name, p)
	}
	m.mu.Unlock()
	m.change()
}

// remember writes down the plugins' sockets, unless podrun ends: the next one may have begun.
func (m *Manager) remember() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.run == nil || m.run.Err() == nil {
		m.record()
	}
}

// record is remember while mu is held.
func (m *Manager) record() {
	m.unwritten = false
	all := map[v1.ResourceName]remembered{}
	for name, r := range m.resources {
		p := r.plugin
		all[name] = remembered{p.socket, p.is, r.lost.IsZero(), r.devices, r.lost, r.registrations, p.ended}
	}
	if err := write(m.o.File, all); err != nil {
		m.o.Log.Warn("device plugins cannot be remembered; after a restart of podrun they are used when they register", "err", err)
	}
}

// Register implements the service Registration of device plugins.
func (m *Manager) Register(ctx context.Context, r *v1beta1.RegisterRequest) (*v1beta1.Empty, error) {
	err := m.registrations.Wait(ctx)
	if err == nil {
		err = m.register(ctx, r)
	}
	name := v1.ResourceName(r.ResourceName)
	if err != nil {
		m.o.Log.Warn("a device plugin cannot register", "resource", name, "endpoint", r.Endpoint, "err", err)
		return nil, err
	}
	m.o.Log.Info("device plugin registered", "resource", name, "endpoint", r.Endpoint)
	return &v1beta1.Empty{}, nil
}

func (m *Manager) register(ctx context.Context, r *v1beta1.RegisterRequest) error {
	if len(r.Endpoint) > mostName || len(r.ResourceName) > mostName || len(r.Version) > mostName {
		r.Endpoint, r.ResourceName = "", "" // they are not for the log
		return errors.New("its endpoint, resource or version is too long")
	}
	if !slices.Contains(v1beta1.SupportedVersions[:], r.Version) {
		return fmt.Errorf("version %q is not supported; %s is", r.Version, v1beta1.Version)
	}
	if r.Endpoint == "" || r.Endpoint != filepath.Base(r.Endpoint) {
		return fmt.Errorf("endpoint %q: must be the name of a socket in %s", r.Endpoint, m.o.Dir)
	}
	return m.Connect(ctx, v1.ResourceName(r.ResourceName), filepath.Join(m.o.Dir, r.Endpoint))
}

// allowed returns an error for a resource that no plugin may have.
func (m *Manager) allowed(name v1.ResourceName) error {
	if why := validation.IsQualifiedName(string(name)); len(why) > 0 {
		return fmt.Errorf("resource %q: %s", name, strings.Join(why, "; "))
	}
	if !pod.IsDevice(name) || strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix) {
		return fmt.Errorf("resource %q: must be of a domain other than kubernetes.io, such as example.com/gpu", name)
	}
	if m.o.Reserved(name) {
		return fmt.Errorf("resource %q: this node's --node-config has devices of that name", name)
	}
	return nil
}

// Connect makes the plugin at a socket the one of a resource. A former one is asked no more.
func (m *Manager) Connect(ctx context.Context, name v1.ResourceName, at string) error {
	_, err := socket.Identify(at)
	if err := errors.Join(m.allowed(name), err); err != nil {
		return err
	}
	p := &plugin{socket: at}
	// It may register before it listens: the kubelet waits for it too.
	if err := p.dial(ctx, grpc.WaitForReady(true)); err != nil {
		return err
	}
	m.mu.Lock()
	if m.run == nil || m.run.Err() != nil {
		m.mu.Unlock()
		return errors.Join(errors.New("podrun ends"), p.conn.Close())
	}
	r := m.resources[name]
	if r == nil && len(m.resources) >= mostResources {
		m.mu.Unlock()
		return errors.Join(fmt.Errorf("device plugins have %d resources already", mostResources), p.conn.Close())
	}
	if r == nil {
		r = &resource{}
		m.resources[name] = r
	} else {
		r.plugin.stop()
	}
	r.plugin, r.lost = p, time.Time{}
	r.registrations++
	m.start(name, p)
	m.mu.Unlock()
	m.change()
	return nil
}

// Disconnect ends the contact with the plugin of a resource, and reports that it was the one at the socket. Its devices
// are unhealthy until the resource is forgotten, as when the connection is lost.
func (m *Manager) Disconnect(name v1.ResourceName, socket string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.resources[name]
	if r == nil || r.plugin.socket != socket || r.plugin.ended {
		return false
	}
	p := r.plugin
	if p.ended = true; p.conn != nil {
		_ = p.conn.Close() // list notices, and closes it again
		p.conn, p.client = nil, nil
	}
	return true
}

// dial connects to the plugin, and asks for its options.
func (p *plugin) dial(ctx context.Context, how ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := socket.Pinned(p.socket, &p.is)
	if err != nil {
		return err
	}
	client := v1beta1.NewDevicePluginClient(conn)
	options, err := client.GetDevicePluginOptions(ctx, &v1beta1.Empty{}, how...)
	if err != nil {
		return errors.Join(fmt.Errorf("asking the plugin for its options: %w", err), conn.Close())
	}
	p.conn, p.client, p.options = conn, client, options
	return nil
}

// start follows a plugin's list in the background. The caller holds the lock.
func (m *Manager) start(name v1.ResourceName, p *plugin) {
	ctx, cancel := context.WithCancel(m.run)
	p.stop = cancel
	m.running.Go(func() { m.follow(ctx, name, p) })
}

// follow follows the list of a plugin until another one takes its place, it is gone for too long, or ctx ends.
func (m *Manager) follow(ctx context.Context, name v1.ResourceName, p *plugin) {
	defer p.stop()
	for {
		err := m.list(ctx, name, p)
		if ctx.Err() != nil {
			return
		}
		if gone := m.disconnected(name, p, err); gone {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retry):
		}
	}
}

// errEnded is that a plugin is not to be called any more.
var errEnded = errors.New("its socket in plugins_registry has been removed")

// list passes on what the plugin lists until the connection ends.
func (m *Manager) list(ctx context.Context, name v1.ResourceName, p *plugin) error {
	m.mu.Lock()
	conn, client, ended := p.conn, p.client, p.ended
	m.mu.Unlock()
	if ended {
		return errEnded
	}
	if conn == nil {
		again := &plugin{socket: p.socket, is: p.is}
		if err := again.dial(ctx); err != nil {
			return err
		}
		m.mu.Lock()
		conn, client, ended = again.conn, again.client, p.ended
		if !ended {
			p.is, p.conn, p.client, p.options = again.is, again.conn, again.client, again.options
		}
		m.mu.Unlock()
		if ended {
			return errors.Join(errEnded, conn.Close())
		}
	}
	defer func() {
		m.mu.Lock()
		p.conn, p.client = nil, nil
		m.mu.Unlock()
		if err := conn.Close(); err != nil {
			m.o.Log.Debug("closing the connection to a device plugin failed", "resource", name, "err", err)
		}
	}()
	stream, err := client.ListAndWatch(ctx, &v1beta1.Empty{}, grpc.MaxCallRecvMsgSize(mostList))
	if err != nil {
		return err
	}
	return latest(ctx, stream.Recv, func(all *v1beta1.ListAndWatchResponse) { m.listed(name, p, all.Devices) })
}

// listed takes over a plugin's list.
func (m *Manager) listed(name v1.ResourceName, p *plugin, all []*v1beta1.Device) {
	devices, tooMany := map[string]device.Plugged{}, false
	spare, bytes := m.spare(name)
	for _, d := range all {
		if d.ID == "" { // nobody could name it
			continue
		}
		if _, again := devices[d.ID]; !again && (len(d.ID) > mostName || len(devices) >= spare || len(d.ID) > bytes) {
			tooMany = true
			continue
		} else if !again {
			bytes -= len(d.ID)
		}
		of := device.Plugged{Healthy: d.Health == v1beta1.Healthy}
		for _, n := range d.GetTopology().GetNodes() {
			if len(of.NUMA) < mostNodes && n.ID >= 0 && n.ID <= mostNode {
				of.NUMA = append(of.NUMA, n.ID)
			}
		}
		devices[d.ID] = of
	}
	m.mu.Lock()
	r := m.resources[name]
	changed := false
	if r != nil && r.plugin == p {
		changed = r.devices == nil || !r.lost.IsZero() || !maps.EqualFunc(r.devices, devices, device.Plugged.Equal)
		r.devices, r.lost = devices, time.Time{}
	}
	m.mu.Unlock()
	if changed {
		m.o.Log.Info("device plugin listed its devices", "resource", name, "devices", len(devices))
		if tooMany {
			m.o.Log.Warn("device plugins have too many devices, or too long IDs; the others are left out",
				"resource", name, "most", mostDevices, "bytes", mostIDs, "each", mostName)
		}
		m.change()
	}
}

// spare returns how many devices a resource may have beside those of others, and with how many bytes of IDs.
func (m *Manager) spare(name v1.ResourceName) (devices, bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	devices, bytes = mostDevices, mostIDs
	for other, r := range m.resources {
		if other == name {
			continue
		}
		devices -= len(r.devices)
		for id := range r.devices {
			bytes -= len(id)
		}
	}
	return devices, bytes
}

// disconnected makes the devices of a plugin unhealthy, and reports that the plugin is not called any more.
func (m *Manager) disconnected(name v1.ResourceName, p *plugin, why error) (gone bool) {
	m.mu.Lock()
	r := m.resources[name]
	if r == nil || r.plugin != p {
		m.mu.Unlock()
		return true
	}
	first := r.lost.IsZero()
	if first {
		r.lost = time.Now()
		unhealthy(r.devices)
	}
	gone = time.Since(r.lost) > graceOfLost
	if gone {
		delete(m.resources, name)
	}
	m.mu.Unlock()
	if first {
		m.o.Log.Warn("the connection to a device plugin ended: its devices are unhealthy", "resource", name, "err", why)
	}
	if first || gone {
		m.change()
	}
	return gone
}

// Devices implements device.Plugins.
func (m *Manager) Devices() map[v1.ResourceName]map[string]device.Plugged {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[v1.ResourceName]map[string]device.Plugged{}
	for name, r := range m.resources {
		if r.devices != nil || !r.lost.IsZero() { // else it lists them in a moment, and pods go on waiting for it
			all[name] = maps.Clone(r.devices)
		}
	}
	return all
}

// Lost implements device.Plugins.
func (m *Manager) Lost() map[v1.ResourceName]time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[v1.ResourceName]time.Time{}
	for name, r := range m.resources {
		if !r.lost.IsZero() {
			all[name] = r.lost
		}
	}
	return all
}
