package plugins

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys/pace"
	"podrun.io/podrun/internal/sys/socket"
)

// socketName is the name of the socket where plugins register.
const socketName = "kubelet.sock"

// ErrKubelet is that somebody else, usually a kubelet, has the directory of device plugins.
var ErrKubelet = errors.New("a kubelet, or another podrun, runs on this machine")

// Open returns a Manager, and makes the directory and its socket: plugins may register from then on, and are
// answered from Run on. An error that is ErrKubelet means that somebody else answers there.
func Open(o Options) (*Manager, error) {
	m := &Manager{
		o: o, resources: map[v1.ResourceName]*resource{},
		registrations: pace.Pace{AtOnce: 2 * mostResources, Every: time.Second},
		writes:        pace.Pace{AtOnce: writesAtOnce, Every: writesInterval},
	}
	var err error
	m.listener, err = m.listen()
	return m, err
}

func (m *Manager) listen() (*socket.Listener, error) {
	if err := os.MkdirAll(m.o.Dir, layout.ModePlugins); err != nil {
		return nil, err
	}
	at := filepath.Join(m.o.Dir, socketName)
	if !socket.IsFree(at) {
		return nil, fmt.Errorf("%w: it answers at %s", ErrKubelet, at)
	}
	return socket.Listen(at)
}

// Close removes the socket. Plugins register no more.
func (m *Manager) Close() error { return m.listener.Remove() }

// Run lets plugins register and follows them until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	following, stop := context.WithCancel(ctx)
	defer writeLast(m)
	defer m.running.Wait()
	defer stop()
	m.mu.Lock()
	m.run = following
	m.mu.Unlock()
	m.recall()
	s := socket.Server()
	v1beta1.RegisterRegistrationServer(s, m)
	defer context.AfterFunc(ctx, s.Stop)()
	return errors.Join(s.Serve(m.listener), ctx.Err())
}

// writeLast writes down what has not been yet.
func writeLast(m *Manager) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unwritten {
		m.record()
	}
}
