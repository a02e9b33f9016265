package device

import (
	"maps"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// wants returns how many devices of each resource p needs at once, and how many CPUs of its containers' own if there
// are such. Containers that start later reuse an init container's, but not a sidecar's, as in Kubernetes.
func wants(p *v1.Pod, cpus bool) map[v1.ResourceName]int {
	if !pod.NeedsDevices(p) && (!cpus || !pod.HasOwnCPUs(p)) {
		return nil // most pods
	}
	out := map[v1.ResourceName]int{}
	divide(p, cpus, func(_ *v1.Container, name v1.ResourceName, _, to int) { out[name] = max(out[name], to) })
	return out
}

// share returns the container's part of the pod's devices, by resource.
func share(p *v1.Pod, container string, has map[v1.ResourceName][]string) map[v1.ResourceName][]string {
	out := map[v1.ResourceName][]string{}
	divide(p, len(has[v1.ResourceCPU]) > 0, func(c *v1.Container, name v1.ResourceName, from, to int) {
		all := has[name]
		if c.Name == container && from < len(all) {
			out[name] = all[from:min(to, len(all))]
		}
	})
	return out
}

// divide calls f with the part that each container has of the pod's devices of a resource: those from one index
// up to another. Sidecars keep theirs from their start on; the init containers use the rest one after another,
// and then the containers divide it among themselves. If cpus is set, CPUs of the containers' own are divided too.
func divide(p *v1.Pod, cpus bool, f func(c *v1.Container, name v1.ResourceName, from, to int)) {
	used := map[v1.ResourceName]int{}
	give := func(c *v1.Container, keep bool) {
		for _, name := range slices.Sorted(maps.Keys(c.Resources.Limits)) {
			number := 0
			if limit := c.Resources.Limits[name]; pod.IsDevice(name) {
				number = int(min(limit.Value(), math.MaxInt32)) // a former podrun took more
			} else if cpus && name == v1.ResourceCPU {
				number = pod.OwnCPUs(p, c)
			}
			if number == 0 {
				continue
			}
			end := used[name] + number
			f(c, name, used[name], end)
			if keep {
				used[name] = end
			}
		}
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		give(c, pod.IsSidecar(c))
	}
	for i := range p.Spec.Containers {
		give(&p.Spec.Containers[i], true)
	}
}
