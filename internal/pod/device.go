package pod

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod/quantity"
)

// IsDevice reports whether the resource is a device: its name has a domain, as in example.com/gpu.
// Not every machine has it.
func IsDevice(name v1.ResourceName) bool { return strings.Contains(string(name), "/") }

// HasDevice reports whether a device is among the resources.
func HasDevice(list v1.ResourceList) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(list)), IsDevice)
}

// DeviceOffer says how many devices of a name a machine's device plugins offer to pods.
type DeviceOffer struct {
	// Usable are the healthy ones, and those that a pod has although they are unhealthy now. Unhealthy are
	// all unhealthy ones. Lost is when their plugin's connection ended; zero while there is one.
	Usable, Unhealthy int
	Lost              time.Time
}

// PageSize returns the size in bytes of the huge pages that a resource such as hugepages-2Mi is of; false if it is of
// none.
func PageSize(name v1.ResourceName) (int64, bool) {
	text, is := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
	if !is {
		return 0, false
	}
	size, err := quantity.Parse(text)
	if err != nil {
		return 0, false
	}
	return quantity.Whole(size)
}

// MostOf returns the highest amount of a resource that can be added up.
func MostOf(name v1.ResourceName) (most int64, limited bool) {
	if IsDevice(name) || name == v1.ResourceCPU {
		return math.MaxInt32, true
	}
	return 0, false
}
