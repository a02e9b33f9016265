// Package plugins reads what serve knows of plugins, for commands, the web page and metrics. It is in contact with none
// of them, and decides nothing.
//
// Begin reading at List.
package plugins

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/device"
	"podrun.io/podrun/internal/device/plugins"
	"podrun.io/podrun/internal/pluginregistry"
	"podrun.io/podrun/internal/volume/csi"
)

// CSI is the type of CSI drivers.
const CSI = "CSIPlugin"

// The Status of a Plugin.
const (
	Connected    = "Connected"
	Disconnected = "Disconnected"
)

// The Status of a Volume. Unpublishing is that of one whose pod is gone.
const (
	Publishing   = "Publishing"
	Published    = "Published"
	Unpublishing = "Unpublishing"
)

// Plugin is a plugin as serve knows it.
type Plugin struct {
	Name string `json:"name"`
	// Type is DevicePlugin or CSIPlugin.
	Type string `json:"type"`
	// Status is Connected or Disconnected.
	Status string `json:"status"`
	// Since is when it was disconnected; zero if it is connected, or if that is not known.
	Since   time.Time `json:"disconnectedSince,omitzero"`
	Socket  string    `json:"socket"`
	Devices []Device  `json:"devices,omitempty"`
	// Unlisted are devices that pods have, and that the plugin does not list any more.
	Unlisted []Device `json:"unlistedDevices,omitempty"`
	// Registrations is how often a device plugin has registered since its resource is known.
	Registrations int `json:"registrations,omitempty"`
	// NodeID is a CSI driver's name for this machine, and Volumes those for which it has been called.
	NodeID  string   `json:"nodeID,omitempty"`
	Volumes []Volume `json:"volumes,omitempty"`
}

// Volume is a volume of a CSI driver.
type Volume struct {
	// Pod is the pod that has it, as NAMESPACE/NAME, and Name the volume's name in that.
	Pod  string `json:"pod"`
	Name string `json:"name"`
	ID   string `json:"id"`
	Path string `json:"path"`
	// Status is Publishing, Published or Unpublishing.
	Status string `json:"status"`
}

// Device is a device of a plugin.
type Device struct {
	ID      string  `json:"id"`
	Healthy bool    `json:"healthy"`
	NUMA    []int64 `json:"numaNodes,omitempty"`
	// Pod is the pod that has it, as NAMESPACE/NAME; "" if it is free.
	Pod string `json:"pod,omitempty"`
}

// Healthy returns how many of the plugin's devices are healthy.
func (p Plugin) Healthy() (n int) {
	for _, d := range p.Devices {
		if d.Healthy {
			n++
		}
	}
	return n
}

// Used returns how many of the plugin's devices pods have, also those that it does not list any more.
func (p Plugin) Used() int { return len(p.pods()) }

// pods returns the pods that have its devices, once for each device.
func (p Plugin) pods() (all []string) {
	for _, d := range slices.Concat(p.Devices, p.Unlisted) {
		if d.Pod != "" {
			all = append(all, d.Pod)
		}
	}
	return all
}

// Pods returns the pods that have devices or volumes of the plugin, sorted; not those that are gone.
func (p Plugin) Pods() []string {
	all := p.pods()
	for _, v := range p.Volumes {
		if v.Status != Unpublishing {
			all = append(all, v.Pod)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// statusOf returns whether a plugin is connected.
func statusOf(connected bool) string {
	if connected {
		return Connected
	}
	return Disconnected
}

// List returns the plugins that serve knows, or knew last, by name. With an error these are those of which something
// can be read.
func List(dirs layout.Dirs) ([]Plugin, error) {
	known, err := plugins.Read(dirs.SandboxFiles().Plugins())
	var users map[v1.ResourceName]map[string]string
	var unread error
	if len(known) > 0 {
		users, unread = usersOf(dirs)
	}
	all := []Plugin{}
	for _, p := range known {
		out := Plugin{
			Name: string(p.Resource), Type: "DevicePlugin", Status: statusOf(p.Connected), Since: p.Lost,
			Socket: p.Socket, Registrations: p.Registrations,
		}
		for _, id := range slices.Sorted(maps.Keys(p.Devices)) {
			d := p.Devices[id]
			out.Devices = append(out.Devices, Device{
				ID: id, Healthy: d.Healthy, NUMA: d.NUMA, Pod: users[p.Resource][id],
			})
		}
		for _, id := range slices.Sorted(maps.Keys(users[p.Resource])) {
			if _, listed := p.Devices[id]; !listed {
				out.Unlisted = append(out.Unlisted, Device{ID: id, Pod: users[p.Resource][id]})
			}
		}
		all = append(all, out)
	}
	drivers, damaged := csiDrivers(dirs)
	return append(all, drivers...), errors.Join(err, unread, damaged)
}

// csiDrivers returns the CSI drivers that have registered, and those that have volumes, by name. With an error these
// are those that can be read.
func csiDrivers(dirs layout.Dirs) ([]Plugin, error) {
	known, err := csi.Read(dirs)
	volumes, damaged := csi.Records(dirs)
	drivers := map[string]*Plugin{}
	for _, d := range known {
		drivers[d.Name] = &Plugin{
			Name: d.Name, Type: CSI, Status: statusOf(d.Connected), Since: d.Lost, Socket: d.Socket, NodeID: d.NodeID,
		}
	}
	for _, v := range volumes {
		p := drivers[v.Driver]
		if p == nil {
			p = &Plugin{Name: v.Driver, Type: CSI, Status: Disconnected, Socket: v.Socket}
			drivers[v.Driver] = p
		}
		status := Publishing
		switch {
		case v.Released:
			status = Unpublishing
		case v.Published:
			status = Published
		}
		p.Volumes = append(p.Volumes, Volume{
			Pod: v.Pod.String(), Name: v.Volume, ID: v.ID, Path: v.Target, Status: status,
		})
	}
	var all []Plugin
	for _, name := range slices.Sorted(maps.Keys(drivers)) {
		all = append(all, *drivers[name])
	}
	return all, errors.Join(err, damaged)
}

// usersOf returns the pods that have devices, by resource and device.
func usersOf(dirs layout.Dirs) (map[v1.ResourceName]map[string]string, error) {
	pods, err := checkpoint.NewStore(dirs, slog.New(slog.DiscardHandler)).List()
	held, out := device.New(device.Options{Dirs: dirs}).Held(), map[v1.ResourceName]map[string]string{}
	for key, revisions := range pods {
		for _, r := range revisions {
			for _, s := range r.Sandboxes {
				for name, ids := range held[s.ID] {
					for _, id := range ids {
						if out[name] == nil {
							out[name] = map[string]string{}
						}
						out[name][id] = key.String()
					}
				}
			}
		}
	}
	return out, err
}

// Refused returns the plugins that serve has found and cannot register.
func Refused(dirs layout.Dirs) ([]pluginregistry.Refused, error) {
	return pluginregistry.ReadRefused(layout.RefusedPlugins(dirs))
}
