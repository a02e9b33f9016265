// Package plugins is serve's contact with what plugs into a kubelet: the registration of plugins (package
// pluginregistry), device plugins (package device/plugins), CSI drivers, and monitors of who has which device (package
// device/podresources). It starts and ends them together, and decides nothing.
//
// Begin reading at Open.
package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/device"
	"podrun.io/podrun/internal/device/plugins"
	"podrun.io/podrun/internal/device/podresources"
	"podrun.io/podrun/internal/pluginregistry"
	"podrun.io/podrun/internal/sys/own"
	"podrun.io/podrun/internal/volume/mounts"
)

// Handler uses the plugins of a type.
type Handler = pluginregistry.Handler

// ErrKubelet is that a kubelet, or another podrun, has the machine's plugins.
var ErrKubelet = plugins.ErrKubelet

// Options configure a Contact. All but Named are required.
type Options struct {
	// Dir is the directory where plugins look for the kubelet: /var/lib/kubelet.
	Dir string
	// File remembers device plugins for the next podrun, and Refused says which plugins cannot be registered.
	File, Refused string
	// Named are the devices of the node configuration.
	Named map[v1.ResourceName][]string
	Log   *slog.Logger
}

// Contact is the contact with the machine's plugins. A nil one has no plugins.
type Contact struct {
	o       Options
	manager *plugins.Manager
}

// Open returns a Contact. Plugins may register from now on; they are answered from Run on. The error is
// ErrKubelet if somebody else answers them, and an own.LooseError if another user could replace one of the directories:
// root calls who answers there. What drivers mount below the directory is seen by containers from now on.
func Open(o Options) (*Contact, error) {
	if err := makeDirs(o.Dir, "", "device-plugins"); err != nil {
		return nil, err
	}
	m, err := plugins.Open(plugins.Options{
		Dir:      filepath.Join(o.Dir, "device-plugins"),
		File:     o.File,
		Reserved: func(name v1.ResourceName) bool { return o.Named[name] != nil },
		Log:      o.Log,
	})
	if err != nil {
		return nil, err
	}
	if err := makeDirs(o.Dir, "pods", "plugins", "plugins_registry", "pod-resources"); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	if err := mounts.Share(o.Dir); err != nil {
		o.Log.Warn("CSI drivers cannot mount volumes from within containers", "err", err)
	}
	return &Contact{o: o, manager: m}, nil
}

// makeDirs makes directories that plugins have too, unless they exist, and checks them as podrun's own.
func makeDirs(dir string, names ...string) error {
	for _, name := range names {
		if err := own.MkdirKept(filepath.Join(dir, name), layout.ModePlugins); err != nil {
			return fmt.Errorf("the directory of plugins: %w", err)
		}
	}
	return nil
}

// Leave writes down in Options.File that no device plugin is connected, and in Options.Refused that none is refused:
// podrun runs without them.
func Leave(file, refused string, log *slog.Logger) {
	err := os.Remove(refused)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err := errors.Join(err, plugins.Leave(file)); err != nil {
		log.Warn("podrun get plugins may show some as connected", "err", err)
	}
}

// Devices returns the device plugins; nil if there are none.
func (c *Contact) Devices() device.Plugins {
	if c == nil {
		return nil
	}
	return c.manager
}

// Run serves plugins and monitors until ctx ends.
func (c *Contact) Run(
	ctx context.Context, csi Handler, devices *device.Devices, pods func() ([]device.Pod, error),
) error {
	if c == nil {
		return nil
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		monitors := podresources.Options{Dir: filepath.Join(c.o.Dir, "pod-resources"), Devices: devices, Pods: pods}
		if err := podresources.Run(ctx, monitors); err != nil && ctx.Err() == nil {
			c.o.Log.Warn("monitors are not told which pods have which devices", "err", err)
		}
	})
	running.Go(func() {
		registry := pluginregistry.New(pluginregistry.Options{
			Dir: filepath.Join(c.o.Dir, "plugins_registry"),
			Handlers: map[string]Handler{
				registration.DevicePlugin: devicePlugins{c.manager, c.o.Dir},
				registration.CSIPlugin:    csi,
			},
			File: c.o.Refused, Log: c.o.Log,
		})
		if err := registry.Run(ctx); err != nil && ctx.Err() == nil {
			c.o.Log.Warn("plugins cannot register by a socket of their own", "err", err)
		}
	})
	return c.manager.Run(ctx)
}

// devicePlugins uses device plugins that register by a socket of their own.
type devicePlugins struct {
	*plugins.Manager
	dir string // Options.Dir
}

// Register implements pluginregistry.Handler.
func (d devicePlugins) Register(ctx context.Context, name, endpoint string, versions []string) error {
	if !slices.Contains(versions, v1beta1.Version) {
		return fmt.Errorf("%w: its versions are %v, and %s is the one that can be used",
			pluginregistry.ErrRefused, versions, v1beta1.Version)
	}
	socket, err := pluginregistry.Beneath(d.dir, endpoint)
	if err != nil {
		return err
	}
	return d.Connect(ctx, v1.ResourceName(name), socket)
}

// Deregister implements pluginregistry.Handler.
func (d devicePlugins) Deregister(name, endpoint string) bool {
	return d.Disconnect(v1.ResourceName(name), filepath.Clean(endpoint))
}

// Close removes the socket where plugins register.
func (c *Contact) Close() error {
	if c == nil {
		return nil
	}
	return c.manager.Close()
}
