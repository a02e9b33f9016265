package device

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"podrun.io/podrun/internal/pod"
)

// wants returns how many devices of each name p needs at once, by Kubernetes' rule: containers that
// start later reuse an init container's devices, but not a sidecar's.
func wants(p *v1.Pod) map[v1.ResourceName]int {
	asks := func(c *v1.Container) bool { return pod.HasDevice(c.Resources.Limits) }
	if !slices.ContainsFunc(pod.AllContainers(p), asks) {
		return nil // most pods: do not compute the requests
	}
	out := map[v1.ResourceName]int{}
	for name, number := range resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{}) {
		if pod.IsDevice(name) && !number.IsZero() {
			out[name] = int(number.Value())
		}
	}
	return out
}

// share returns the container's part of the pod's devices, by resource.
func share(p *v1.Pod, container string, has map[v1.ResourceName][]string) map[v1.ResourceName][]string {
	out := map[v1.ResourceName][]string{}
	divide(p, func(c *v1.Container, name v1.ResourceName, from, to int) {
		all := has[name]
		if c.Name == container && from < len(all) {
			out[name] = all[from:min(to, len(all))]
		}
	})
	return out
}

// divide calls f with the part that each container has of the pod's devices of a resource: those from one index
// up to another. Sidecars keep theirs from their start on; the init containers use the rest one after another,
// and then the containers divide it among themselves.
func divide(p *v1.Pod, f func(c *v1.Container, name v1.ResourceName, from, to int)) {
	used := map[v1.ResourceName]int{}
	give := func(c *v1.Container, keep bool) {
		for _, name := range slices.Sorted(maps.Keys(c.Resources.Limits)) {
			limit := c.Resources.Limits[name]
			if !pod.IsDevice(name) || limit.IsZero() {
				continue
			}
			end := used[name] + int(limit.Value())
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
