// Package plugins is serve's contact with what plugs into a kubelet: device plugins (package device/plugins),
// and monitors of who has which device (package device/podresources). It starts and ends them together, and
// decides nothing.
//
// Begin reading at Open.
package plugins

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/device"
	"podrun.io/podrun/internal/device/plugins"
	"podrun.io/podrun/internal/device/podresources"
)

// ErrKubelet is that a kubelet, or another podrun, has the machine's plugins.
var ErrKubelet = plugins.ErrKubelet

// Options configure a Contact. All but Named are required.
type Options struct {
	// Dir is the directory where plugins look for the kubelet: /var/lib/kubelet.
	Dir string
	// File remembers device plugins for the next podrun.
	File string
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
// ErrKubelet if somebody else answers them.
func Open(o Options) (*Contact, error) {
	m, err := plugins.Open(plugins.Options{
		Dir:      filepath.Join(o.Dir, "device-plugins"),
		File:     o.File,
		Reserved: func(name v1.ResourceName) bool { return o.Named[name] != nil },
		Log:      o.Log,
	})
	if err != nil {
		return nil, err
	}
	return &Contact{o: o, manager: m}, nil
}

// Devices returns the device plugins; nil if there are none.
func (c *Contact) Devices() device.Plugins {
	if c == nil {
		return nil
	}
	return c.manager
}

// Run serves plugins and monitors until ctx ends.
func (c *Contact) Run(ctx context.Context, devices *device.Devices, pods func() ([]device.Pod, error)) error {
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
	return c.manager.Run(ctx)
}

// Close removes the socket where plugins register.
func (c *Contact) Close() error {
	if c == nil {
		return nil
	}
	return c.manager.Close()
}
