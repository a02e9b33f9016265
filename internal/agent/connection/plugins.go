package connection

import (
	"context"
	"slices"

	"podrun.io/podrun/internal/agent/plugins"
	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/device"
	"podrun.io/podrun/internal/pod"
)

// ErrKubelet is that a kubelet, or another podrun, has the machine's plugins.
var ErrKubelet = plugins.ErrKubelet

// contact returns the contact with the machine's plugins; nil if there is to be none.
func (o Options) contact() (*plugins.Contact, error) {
	if o.PluginsDir == "" {
		if o.NoPlugins {
			plugins.Leave(o.Dirs.SandboxFiles().Plugins(), layout.RefusedPlugins(o.Dirs), o.Log)
		}
		return nil, nil
	}
	return plugins.Open(plugins.Options{
		Dir: o.PluginsDir, File: o.Dirs.SandboxFiles().Plugins(), Refused: layout.RefusedPlugins(o.Dirs),
		Named: o.Devices, Log: o.Log,
	})
}

// allocator returns what allocates the machine's devices.
func (o Options) allocator() *device.Devices {
	return device.New(device.Options{
		Dirs: o.Dirs, Named: o.Devices, Plugins: o.plugins.Devices(), CPUs: o.CPUs,
		Present: func() (func(string) bool, error) { return Present(o.Store) },
	})
}

// RunPlugins serves the machine's plugins, and monitors of what pods have of them, until ctx ends. CSI drivers
// register with csi.
func (c *Connection) RunPlugins(ctx context.Context, csi plugins.Handler) error {
	return c.o.plugins.Run(ctx, csi, c.Devices, c.pods)
}

// pods returns the pods that have a sandbox, by name. Of a pod that is being replaced it is the newest
// revision.
func (c *Connection) pods() ([]device.Pod, error) {
	all, err := c.o.Store.List()
	if err != nil {
		return nil, err
	}
	var out []device.Pod
	for _, revisions := range all {
		var newest *checkpoint.Checkpoint
		for _, r := range revisions {
			if len(r.Sandboxes) > 0 && (newest == nil || r.Sequence > newest.Sequence) {
				newest = r
			}
		}
		if newest != nil {
			out = append(out, device.Pod{Pod: newest.Pod, Sandbox: newest.Sandboxes[0].ID})
		}
	}
	slices.SortFunc(out, func(a, b device.Pod) int { return pod.KeyOf(a.Pod).Compare(pod.KeyOf(b.Pod)) })
	return out, nil
}
