package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/pod"
)

// Machine is what the machine offers to pods, and what the other pods on it have requested.
type Machine struct {
	Has, Used v1.ResourceList
	// Holders names other pods that have some, for people, and Unhealthy is how many devices nobody can get, both
	// by resource. Why says what numbers do not: that there is no plugin.
	Holders   map[v1.ResourceName]string
	Unhealthy map[v1.ResourceName]int
	Why       map[v1.ResourceName]string
	NoPlugins bool     // no device plugin can register: a device that is missing does not come
	CPUs      pod.CPUs // of this pod
}

// outOf begins the reasons of pods that lack a resource.
const outOf = "OutOf"

// Lacks returns the resource that a pod waits for because the machine has too little of it; "" if there is none.
func (w Waiting) Lacks() v1.ResourceName {
	name, _ := strings.CutPrefix(w.Reason, outOf)
	if name == w.Reason {
		return ""
	}
	return v1.ResourceName(name)
}

// Lack returns which of the requested resources does not fit into what the machine has beside what is used by others;
// nil if all of them fit. A resource that the machine does not name is ignored unless it is a device. Reason, message
// and the order of the resources are the kubelet's; the message also says who has it.
func (m Machine) Lack(requests v1.ResourceList) *Waiting {
	order := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		if !slices.Contains(order, name) {
			order = append(order, name)
		}
	}
	for _, name := range order {
		wanted, taken := requests[name], m.Used[name]
		capacity, known := m.Has[name]
		if !known && !pod.IsDevice(name) || wanted.IsZero() {
			continue
		}
		sum := wanted.DeepCopy()
		sum.Add(taken)
		if sum.Cmp(capacity) <= 0 {
			continue
		}
		value := (*resource.Quantity).Value
		if name == v1.ResourceCPU {
			value = (*resource.Quantity).MilliValue
		}
		message := cmp.Or(m.Why[name], fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, "+
			"used: %d, capacity: %d%s", name, value(&wanted), value(&taken), value(&capacity), m.about(name)))
		return &Waiting{Reason: outOf + string(name), Message: message}
	}
	return nil
}

// about says why there is no more of a resource.
func (m Machine) about(name v1.ResourceName) (out string) {
	if holders := m.Holders[name]; holders != "" {
		out = "; in use by " + holders
	}
	if n := m.Unhealthy[name]; n > 0 {
		out += fmt.Sprintf("; unhealthy: %d", n)
	}
	return out
}

// isExclusive reports that the pod needs what one sandbox at a time can have: devices, or CPUs of its own.
func (m Machine) isExclusive(p *v1.Pod) bool {
	return pod.NeedsDevices(p) || m.CPUs.Shared != "" && pod.HasOwnCPUs(p)
}
