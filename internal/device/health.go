package device

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Pod is a pod that has a sandbox.
type Pod struct {
	*v1.Pod
	Sandbox string
}

// All returns all devices by resource and ID: those of the node configuration, which count as healthy, and
// those of plugins.
func (d *Devices) All() map[v1.ResourceName]map[string]Plugged {
	out := map[v1.ResourceName]map[string]Plugged{}
	maps.Copy(out, d.plugged())
	for name, named := range d.o.Named {
		out[name] = map[string]Plugged{}
		for _, one := range named {
			out[name][one] = Plugged{Healthy: true}
		}
	}
	return out
}

// numaOf returns the NUMA nodes of devices of a plugin, as far as it says them.
func numaOf(plugged map[string]Plugged, ids []string) map[string][]int64 {
	out := map[string][]int64{}
	for _, id := range ids {
		if of := plugged[id].NUMA; len(of) > 0 {
			out[id] = of
		}
	}
	return out
}

// NUMA returns the NUMA nodes of the plugins' devices that the sandbox has of d, by resource and ID: those that the
// plugin says now, or if it does not list the device any more, those that it said when it was allocated.
func NUMA(d *Devices, id string) map[v1.ResourceName]map[string][]int64 {
	has, plugged, out := d.read(id), d.plugged(), map[v1.ResourceName]map[string][]int64{}
	for name, of := range has.Plugins {
		out[name] = map[string][]int64{}
		maps.Copy(out[name], of.NUMA)
		for _, one := range has.Devices[name] {
			if now, listed := plugged[name][one]; listed {
				out[name][one] = now.NUMA
			}
		}
	}
	return out
}

// HeldBy returns the devices of each container of p, whose sandbox has the ID, of plugins and of the node
// configuration.
func (d *Devices) HeldBy(id string, p *v1.Pod) map[string]map[v1.ResourceName][]string {
	if len(wants(p, d.o.CPUs.Static)) == 0 {
		return nil
	}
	return parts(p, d.read(id))
}

// parts divides an allocation among the containers of p.
func parts(p *v1.Pod, has allocation) map[string]map[v1.ResourceName][]string {
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
	if len(wants(p, d.o.CPUs.Static)) == 0 {
		return nil
	}
	has, plugged := d.read(id), d.plugged()
	if len(has.Plugins) == 0 {
		return nil
	}
	out := map[string][]v1.ResourceStatus{}
	for container, part := range parts(p, has) {
		for _, name := range slices.Sorted(maps.Keys(part)) {
			if _, is := has.Plugins[name]; !is {
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
