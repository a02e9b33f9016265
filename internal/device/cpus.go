package device

import (
	"runtime"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"podrun.io/podrun/internal/device/cpus"
	"podrun.io/podrun/internal/pod"
)

// CPUs are the machine's CPUs. Under the static policy containers of Guaranteed pods that ask for whole CPUs get them
// for themselves: they are devices of the resource cpu here. All other containers share the rest, with the reserved
// ones.
type CPUs struct {
	// Static is the policy.
	Static bool
	// All are the CPUs that pods may use. Reserved of them are never a container's own.
	All, Reserved cpuset.CPUSet
	Topology      cpus.Topology
}

// Offered returns how many CPUs pods may request together: those that podrun's own process may run on or, if some are
// reserved, all others of the machine.
func (c CPUs) Offered() int {
	if c.Reserved.IsEmpty() {
		return runtime.NumCPU()
	}
	return c.All.Difference(c.Reserved).Size()
}

// Allocatable are the CPUs that containers may get for themselves; none without the static policy.
func (c CPUs) Allocatable() cpuset.CPUSet {
	if !c.Static {
		return cpuset.New()
	}
	return c.All.Difference(c.Reserved)
}

// prefer returns which of the free CPUs a container gets that needs so many, with those that it must have.
func (c CPUs) prefer(free, must []string, number int) []string {
	rest := CPUSet(free).Difference(CPUSet(must))
	return append(slices.Clone(must), idsOf(c.Topology.Choose(rest, number-len(must)))...)
}

// CPUPolicy returns the machine's CPUs and their policy.
func (d *Devices) CPUPolicy() CPUs { return d.o.CPUs }

// CPUs returns which CPUs the containers of p, whose sandbox has the ID, are to run on.
func (d *Devices) CPUs(id string, p *v1.Pod) pod.CPUs {
	out := pod.CPUs{All: d.allCPUs}
	if !d.o.CPUs.Static {
		return out
	}
	out.Shared = d.sharedCPUs().String()
	has := d.read(id)
	parts := parts(p, has)
	for _, c := range pod.AllContainers(p) {
		number := pod.OwnCPUs(p, c)
		if number == 0 {
			continue
		}
		if out.Own == nil {
			out.Own = map[string]string{}
		}
		out.Own[c.Name] = pod.Unchosen
		own := parts[c.Name][v1.ResourceCPU]
		if len(own) == number && isEnough(has.Devices, wants(p, true), d.o.CPUs) {
			out.Own[c.Name] = CPUSet(own).String()
		}
	}
	return out
}

// sharedCPUs are the CPUs of all containers that have none of their own.
func (d *Devices) sharedCPUs() cpuset.CPUSet {
	shared := d.o.CPUs.All
	present, err := d.o.Present()
	for id, of := range d.Held() {
		if err != nil || present(id) { // of others the removal was interrupted
			shared = shared.Difference(CPUSet(of[v1.ResourceCPU]))
		}
	}
	return shared.Union(d.o.CPUs.Reserved)
}

// CPUSet returns the set of CPUs with those IDs.
func CPUSet(ids []string) cpuset.CPUSet {
	var numbers []int
	for _, id := range ids {
		if n, err := strconv.Atoi(id); err == nil {
			numbers = append(numbers, n)
		}
	}
	return cpuset.New(numbers...)
}

// idsOf returns the CPUs of a set, in their order.
func idsOf(set cpuset.CPUSet) []string {
	var out []string
	for _, id := range set.List() {
		out = append(out, strconv.Itoa(id))
	}
	return out
}
