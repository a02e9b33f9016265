package oci

import (
	"math"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/cpuset"

	"podrun.io/podrun/internal/pod"
)

// The kernel's limits of cpu.shares, and the period and the minimum of the CPU quota in
// microseconds.
const (
	minShares, maxShares = 2, 262144
	cpuPeriod            = 100_000
	minQuota             = 1_000
)

// Values of oom_score_adj by Kubernetes' rules. The value of a burstable pod is between those of
// the other classes.
const (
	oomGuaranteed   = -997
	oomBestEffort   = 1000
	oomBurstableMin = 3
	oomBurstableMax = 999
)

// nodeCritical is the priority class of the most critical pods of a node.
const nodeCritical = "system-node-critical"

// resources returns the container's resources in the terms of cgroup v1; the runtime converts them
// for v2.
func resources(in Input) *specs.LinuxResources {
	c := in.Container
	out := &specs.LinuxResources{
		Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}},
		CPU:     &specs.LinuxCPU{Shares: new(Shares(in.Pod, c)), Cpus: in.CPUs},
	}
	if !in.hasOwnCPUs() { // what has all of its CPUs needs no limit of their time
		setQuota(out.CPU, limitOf(in.Pod, c, v1.ResourceCPU))
	}
	if limit := limitOf(in.Pod, c, v1.ResourceMemory); limit.Sign() > 0 {
		out.Memory = &specs.LinuxMemory{Limit: new(limit.Value())}
		if in.Machine.SwapLimits {
			out.Memory.Swap = out.Memory.Limit // memory and swap together: no swap
		}
	}
	out.HugepageLimits = hugePageLimits(in)
	if in.Driver == Systemd {
		out.Pids = &specs.LinuxPids{Limit: new(int64(-1))} // else systemd sets a limit
	}
	out.Unified = unified(in)
	limitReservations(in, out)
	return out
}

// unified returns the settings that only version 2 has and that an update must repeat; nil on version
// 1, where runc refuses any.
func unified(in Input) map[string]string {
	if !in.CgroupV2 {
		return nil
	}
	// The kernel kills all processes of a container or none, so that no container continues in part.
	out := map[string]string{"memory.oom.group": "1"}
	if in.Machine.SwapLimits {
		out["memory.swap.max"] = "0" // as the kubelet's NoSwap, also without a memory limit
	}
	return out
}

// hasOwnCPUs reports that nothing else of podrun's runs on the container's CPUs: they are as many as it has for itself
// under the static policy, whose shared ones are others.
func (in Input) hasOwnCPUs() bool {
	own := pod.OwnCPUs(in.Pod, in.Container)
	given, err := cpuset.Parse(in.CPUs)
	return own > 0 && err == nil && given.Size() == own
}

// Update returns the settings that bring a running container's cgroup to what the manifest says.
// Unlike the resources of a spec they also state explicitly which limits do not exist.
func Update(in Input) *specs.LinuxResources {
	all := resources(in)
	out := &specs.LinuxResources{CPU: all.CPU, Memory: all.Memory, Unified: unified(in)}
	nameMissing(out, -1)
	return out
}

// UpdateCPUs returns the part of Update that moves a container to other CPUs. Any update states what only version 2
// has: without a memory limit runc allows all swap, and systemd writes memory.oom.group anew with each property that is
// set, as 0 for scopes without OOMPolicy (see annotations).
func UpdateCPUs(in Input) *specs.LinuxResources {
	return &specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: in.CPUs}, Unified: unified(in)}
}

// PodUpdate is Update for the pod's own cgroup, which may have limits that the pod or podrun's options had before.
func PodUpdate(p *v1.Pod, rules PodRules) *specs.LinuxResources {
	out := PodResources(p, rules)
	if out == nil {
		out = &specs.LinuxResources{}
	}
	if out.CPU != nil {
		nameMissing(out, math.MaxInt64)
	}
	if out.Pids == nil {
		out.Pids = &specs.LinuxPids{Limit: new(int64(-1))}
	}
	return out
}

func nameMissing(r *specs.LinuxResources, unlimited int64) {
	if r.CPU.Quota == nil {
		r.CPU.Quota, r.CPU.Period = new(int64(-1)), new(uint64(cpuPeriod))
	}
	if r.Memory == nil {
		r.Memory = &specs.LinuxMemory{Limit: &unlimited}
	}
}

// limitOf returns the container's limit or, if it has none, the pod's.
func limitOf(p *v1.Pod, c *v1.Container, name v1.ResourceName) resource.Quantity {
	limit := c.Resources.Limits[name]
	if limit.IsZero() && p.Spec.Resources != nil {
		limit = p.Spec.Resources.Limits[name]
	}
	return limit
}

func setQuota(cpu *specs.LinuxCPU, limit resource.Quantity) {
	if limit.Sign() > 0 {
		cpu.Quota = new(max(limit.MilliValue()*cpuPeriod/1000, minQuota))
		cpu.Period = new(uint64(cpuPeriod))
	}
}

// Shares returns the container's CPU weight, in terms of cgroup v1: from its request, else from its
// limit or, without one, the pod's limit.
func Shares(p *v1.Pod, c *v1.Container) uint64 {
	cpu, ok := c.Resources.Requests[v1.ResourceCPU]
	if !ok {
		cpu = limitOf(p, c, v1.ResourceCPU)
	}
	return sharesOf(cpu)
}

func sharesOf(cpu resource.Quantity) uint64 {
	return uint64(min(max(cpu.MilliValue()*1024/1000, minShares), maxShares))
}

// PodRules are what a machine's pods have in common.
type PodRules struct {
	// CPUs is how many CPUs pods may request together.
	CPUs int
	// MaxPids is the maximum number of processes in a pod; 0 means no limit.
	MaxPids int64
	// StaticCPUs reports that containers may have CPUs for themselves.
	StaticCPUs bool
}

// PodResources returns the settings of the pod's own cgroup: the sums of its containers' resources,
// or the pod's own where it has any. A limit is set only if every container has one. The result is
// nil if there is nothing to set.
func PodResources(p *v1.Pod, rules PodRules) *specs.LinuxResources {
	var out *specs.LinuxResources
	if pod.QOS(p) != v1.PodQOSBestEffort {
		out = podLimits(p)
	}
	var pages []specs.LinuxHugepageLimit
	if own := p.Spec.Resources; own != nil {
		pages = spellHugePages(hugePages(own.Limits))
	}
	if rules.StaticCPUs && pod.HasOwnCPUs(p) {
		out.CPU.Quota, out.CPU.Period = nil, nil // see hasOwnCPUs
	}
	if out == nil && (len(pages) > 0 || rules.MaxPids > 0) {
		out = &specs.LinuxResources{}
	}
	if len(pages) > 0 {
		out.HugepageLimits = pages
	}
	if rules.MaxPids > 0 {
		out.Pids = &specs.LinuxPids{Limit: new(rules.MaxPids)}
	}
	return out
}

func podLimits(p *v1.Pod) *specs.LinuxResources {
	requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	limits := resourcehelper.PodLimits(p, resourcehelper.PodResourcesOptions{})
	out := &specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: new(sharesOf(*requests.Cpu()))}}
	if limitsAll(p, v1.ResourceCPU) {
		setQuota(out.CPU, *limits.Cpu())
	}
	if memory := limits.Memory(); limitsAll(p, v1.ResourceMemory) && memory.Sign() > 0 {
		out.Memory = &specs.LinuxMemory{Limit: new(memory.Value())}
	}
	return out
}

// limitsAll reports whether the pod, or each of its containers, has a limit of the resource.
func limitsAll(p *v1.Pod, name v1.ResourceName) bool {
	limits := func(r v1.ResourceRequirements) bool {
		limit := r.Limits[name]
		return !limit.IsZero()
	}
	if p.Spec.Resources != nil && limits(*p.Spec.Resources) {
		return true
	}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if !limits(c.Resources) {
			return false
		}
	}
	return true
}

// RootResources returns the settings of the cgroup of all pods: the weight of all that they may request together, so
// that they get it whatever runs beside them. A cgroup of which nobody has set the weight weighs as much as one CPU.
func RootResources(rules PodRules) *specs.LinuxResources {
	cpus := resource.NewQuantity(int64(rules.CPUs), resource.DecimalSI)
	return &specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: new(sharesOf(*cpus))}}
}

// ClassResources returns the settings of the cgroup of all best-effort pods, which get only the CPU
// time that nothing else uses.
func ClassResources() *specs.LinuxResources {
	return &specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: new(uint64(minShares))}}
}

// oomScoreAdj returns Kubernetes' value, but never less than the machine's LowestOOMScoreAdj.
func oomScoreAdj(in Input) int {
	return max(wantedOOMScoreAdj(in.Pod, in.Container, in.Machine.Memory), in.Machine.LowestOOMScoreAdj)
}

// wantedOOMScoreAdj returns Kubernetes' oom_score_adj: the more of the machine's memory, in bytes,
// a burstable container requests, the lower. A sidecar's is not higher than that of the container
// that requests the least, which it serves too.
func wantedOOMScoreAdj(p *v1.Pod, c *v1.Container, memory int64) int {
	qos := pod.QOS(p)
	switch {
	case p.Spec.PriorityClassName == nodeCritical || qos == v1.PodQOSGuaranteed:
		return oomGuaranteed
	case qos == v1.PodQOSBestEffort:
		return oomBestEffort
	case memory <= 0:
		return oomBurstableMax
	}
	score := func(c *v1.Container) int64 {
		return 1000 - 1000*(c.Resources.Requests.Memory().Value()+shareOfPod(p))/memory
	}
	wanted := score(c)
	if isSidecar(p, c.Name) {
		highest := score(&p.Spec.Containers[0])
		for i := range p.Spec.Containers {
			highest = max(highest, score(&p.Spec.Containers[i]))
		}
		wanted = min(wanted, highest)
	}
	return int(min(max(wanted, oomBurstableMin), oomBurstableMax))
}

// shareOfPod returns each container's share of the memory that the pod requests beyond its
// containers' requests.
func shareOfPod(p *v1.Pod) int64 {
	if p.Spec.Resources == nil || p.Spec.Resources.Requests.Memory().IsZero() {
		return 0
	}
	of := resourcehelper.AggregateContainerRequests(p, resourcehelper.PodResourcesOptions{})
	number := len(p.Spec.Containers)
	for i := range p.Spec.InitContainers {
		if isSidecar(p, p.Spec.InitContainers[i].Name) {
			number++
		}
	}
	return max(p.Spec.Resources.Requests.Memory().Value()-of.Memory().Value(), 0) / int64(max(number, 1))
}

func isSidecar(p *v1.Pod, name string) bool {
	for _, c := range p.Spec.InitContainers {
		if c.Name == name {
			return pod.IsSidecar(&c)
		}
	}
	return false
}
