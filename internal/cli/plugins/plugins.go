// Package plugins reads what serve knows of plugins, for commands.
//
// Begin reading at List.
package plugins

import (
	"log/slog"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/device"
	"podrun.io/podrun/internal/device/plugins"
)

// Plugin is a plugin as serve knows it.
type Plugin struct {
	Name string `json:"name"`
	// Type is DevicePlugin.
	Type string `json:"type"`
	// Status is Connected or Disconnected.
	Status  string   `json:"status"`
	Socket  string   `json:"socket"`
	Devices []Device `json:"devices,omitempty"`
}

// Device is a device of a plugin.
type Device struct {
	ID      string  `json:"id"`
	Healthy bool    `json:"healthy"`
	NUMA    []int64 `json:"numaNodes,omitempty"`
	// Pod is the pod that has it, as NAMESPACE/NAME; "" if it is free.
	Pod string `json:"pod,omitempty"`
}

// List returns the plugins that serve knows, or knew last, by name.
func List(dirs layout.Dirs) ([]Plugin, error) {
	known, err := plugins.Read(dirs.SandboxFiles().Plugins())
	if err != nil {
		return nil, err
	}
	users := map[v1.ResourceName]map[string]string{}
	if len(known) > 0 {
		if users, err = usersOf(dirs); err != nil {
			return nil, err
		}
	}
	all := []Plugin{}
	for _, p := range known {
		out := Plugin{Name: string(p.Resource), Type: "DevicePlugin", Status: "Disconnected", Socket: p.Socket}
		if p.Connected {
			out.Status = "Connected"
		}
		for _, id := range slices.Sorted(maps.Keys(p.Devices)) {
			d := p.Devices[id]
			out.Devices = append(out.Devices, Device{
				ID: id, Healthy: d.Healthy, NUMA: d.NUMA, Pod: users[p.Resource][id],
			})
		}
		all = append(all, out)
	}
	return all, nil
}

// usersOf returns the pods that have devices, by resource and device.
func usersOf(dirs layout.Dirs) (map[v1.ResourceName]map[string]string, error) {
	pods, err := checkpoint.NewStore(dirs, slog.New(slog.DiscardHandler)).List()
	if err != nil {
		return nil, err
	}
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
	return out, nil
}
