package device

import (
	"maps"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Pod is a pod that has a sandbox.
type Pod struct {
	*v1.Pod
	Sandbox string
}

// Allocatable returns the devices that pods may get, by resource and ID: those of the node configuration, and
// the healthy ones of plugins.
func (d *Devices) Allocatable() map[v1.ResourceName]map[string]Plugged {
	out := map[v1.ResourceName]map[string]Plugged{}
	for name, plugged := range d.plugged() {
		out[name] = maps.Clone(plugged)
		maps.DeleteFunc(out[name], func(_ string, of Plugged) bool { return !of.Healthy })
	}
	for name, named := range d.o.Named {
		out[name] = map[string]Plugged{}
		for _, one := range named {
			out[name][one] = Plugged{Healthy: true}
		}
	}
	return out
}

// HeldBy returns the devices of each container of p, whose sandbox has the ID, of plugins and of the node
// configuration.
func (d *Devices) HeldBy(id string, p *v1.Pod) map[string]map[v1.ResourceName][]string {
	if len(wants(p)) == 0 {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(d.o.Dirs.SandboxFiles().Devices(), id))
	if err != nil {
		return nil
	}
	has, err := decode(text)
	if err != nil {
		return nil
	}
	out := map[string]map[v1.ResourceName][]string{}
	for _, c := range pod.AllContainers(p) {
		if part := share(p, c.Name, has.Devices); len(part) > 0 {
			out[c.Name] = part
		}
	}
	return out
}

// Health returns the health of the plugins' devices that each container of p has, for the pod's status. That of
// a device which its plugin does not list any more, or whose plugin is not known, is not known.
//
// Source: https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/
func (d *Devices) Health(id string, p *v1.Pod) map[string][]v1.ResourceStatus {
	held := d.HeldBy(id, p)
	if len(held) == 0 {
		return nil
	}
	plugged := d.plugged()
	out := map[string][]v1.ResourceStatus{}
	for container, part := range held {
		for _, name := range slices.Sorted(maps.Keys(part)) {
			if _, named := d.o.Named[name]; named {
				continue
			}
			of := v1.ResourceStatus{Name: name}
			for _, one := range part[name] {
				health := v1.ResourceHealthStatusUnknown
				if now, listed := plugged[name][one]; listed && now.Healthy {
					health = v1.ResourceHealthStatusHealthy
				} else if listed {
					health = v1.ResourceHealthStatusUnhealthy
				}
				of.Resources = append(of.Resources, v1.ResourceHealth{ResourceID: v1.ResourceID(one), Health: health})
			}
			out[container] = append(out[container], of)
		}
	}
	return out
}
