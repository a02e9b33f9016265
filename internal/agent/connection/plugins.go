package connection

import (
	"context"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/device"
	"podrun.io/podrun/internal/device/plugins"
)

// ErrKubelet is that a kubelet, or another podrun, has the machine's plugins.
var ErrKubelet = plugins.ErrKubelet

// contact returns the contact with the machine's device plugins; nil if there is to be none.
func (o Options) contact() (*plugins.Manager, error) {
	if o.PluginsDir == "" {
		return nil, nil
	}
	return plugins.Open(plugins.Options{
		Dir:      filepath.Join(o.PluginsDir, "device-plugins"),
		File:     o.Dirs.SandboxFiles().Plugins(),
		Reserved: func(name v1.ResourceName) bool { return o.Devices[name] != nil },
		Log:      o.Log,
	})
}

// allocator returns what allocates the machine's devices.
func (o Options) allocator() *device.Devices {
	all := device.Options{
		Dirs: o.Dirs, Named: o.Devices,
		Present: func() (map[string]bool, error) { return presentSandboxes(o.Store) },
	}
	if o.plugins != nil {
		all.Plugins = o.plugins
	}
	return device.New(all)
}

// RunPlugins serves the machine's plugins until ctx ends.
func (c *Connection) RunPlugins(ctx context.Context) error { return c.o.plugins.Run(ctx) }
