package pod

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// CPUs are the CPUs that a pod's containers are to run on. Each is a list of CPUs in the kernel's format, such as
// "0-2,7".
type CPUs struct {
	// Shared are those of all containers without CPUs of their own; "" if containers may run on all.
	Shared string
	// Own are the containers' own, by the containers' names; Unchosen if they are still to be chosen.
	Own map[string]string
	// All are all CPUs that pods may run on.
	All string
}

// Unchosen is where CPUs of a container's own are to be chosen, and where it is not known on which ones a container is.
const Unchosen = "unchosen"

// Of returns the CPUs that a container is to run on, which runs on last; "" if that was never restricted.
func (c CPUs) Of(container, last string) string {
	if own := c.Own[container]; own != "" {
		return own
	}
	if c.Shared == "" && last != "" {
		return cmp.Or(c.All, last) // it was restricted, and is not to be any more
	}
	return c.Shared
}

// OwnCPUs returns how many CPUs the container has for itself under the static CPU policy: its limit, if that is a whole
// number and its pod is Guaranteed; else 0. A pod with resources of its own divides these among its containers itself.
//
// Source: https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/#static-policy
func OwnCPUs(p *v1.Pod, c *v1.Container) int {
	limit := c.Resources.Limits[v1.ResourceCPU]
	if p.Spec.Resources != nil || limit.IsZero() || limit.MilliValue()%1000 != 0 || QOS(p) != v1.PodQOSGuaranteed {
		return 0
	}
	return int(limit.Value())
}

// HasOwnCPUs reports that a container of the pod has CPUs for itself under the static CPU policy.
func HasOwnCPUs(p *v1.Pod) bool {
	return slices.ContainsFunc(AllContainers(p), func(c *v1.Container) bool { return OwnCPUs(p, c) > 0 })
}

// NeedsDevices reports that a container of the pod needs a device, which one sandbox at a time can have.
func NeedsDevices(p *v1.Pod) bool {
	return slices.ContainsFunc(AllContainers(p), func(c *v1.Container) bool { return HasDevice(c.Resources.Limits) })
}
