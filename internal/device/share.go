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
	asks := func(c *v1.Container) bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(c.Resources.Limits)), pod.IsDevice)
	}
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

// share returns the container's part of the pod's devices. Sidecars keep theirs from their start
// on; the init containers use the rest one after another, and then the containers divide it among
// themselves.
func share(p *v1.Pod, container string, has map[v1.ResourceName][]string) []string {
	used := map[v1.ResourceName]int{}
	var out []string
	give := func(c *v1.Container, keep bool) bool {
		for _, name := range slices.Sorted(maps.Keys(has)) {
			limit := c.Resources.Limits[name]
			end := used[name] + int(limit.Value())
			if c.Name == container {
				out = append(out, has[name][min(used[name], len(has[name])):min(end, len(has[name]))]...)
			}
			if keep {
				used[name] = end
			}
		}
		return c.Name == container
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if give(c, c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways) {
			return out
		}
	}
	for i := range p.Spec.Containers {
		if give(&p.Spec.Containers[i], true) {
			return out
		}
	}
	return out
}
