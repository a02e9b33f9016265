package pod

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// IsDevice reports whether the resource is a device: its name has a domain, as in example.com/gpu.
// Not every machine has it.
func IsDevice(name v1.ResourceName) bool { return strings.Contains(string(name), "/") }

// HasDevice reports whether a device is among the resources.
func HasDevice(list v1.ResourceList) bool {
	for name := range list {
		if IsDevice(name) {
			return true
		}
	}
	return false
}

// DeviceOffer says how many devices of a name a machine's device plugins offer to pods.
type DeviceOffer struct {
	// Usable are the healthy ones, and those that a pod has although they are unhealthy now. Unhealthy are
	// all unhealthy ones.
	Usable, Unhealthy int
}
