package ocispec

import (
	"maps"
	"path"

	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
)

// CgroupRoot is the cgroup that all of podrun's pods are under.
const CgroupRoot = "/podrun"

// The kernel's limits of cpu.shares, and the period that CPU limits are counted in, in microseconds.
const (
	minShares, maxShares = 2, 262144
	cpuPeriod            = 100_000
	minQuota             = 1_000
)

// CgroupParent is the cgroup of the pod, the parent of its containers', as a path from the cgroup root.
func CgroupParent(p *v1.Pod) string {
	return path.Join(CgroupRoot, classDir(QOS(p)), "pod"+string(p.UID))
}

// CgroupParents are all the places where the cgroup of a pod with this UID may be.
func CgroupParents(uid string) []string {
	var out []string
	for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		out = append(out, path.Join(CgroupRoot, classDir(class), "pod"+uid))
	}
	return out
}

func classDir(c v1.PodQOSClass) string {
	switch c {
	case v1.PodQOSBurstable:
		return "burstable"
	case v1.PodQOSBestEffort:
		return "besteffort"
	default:
		return ""
	}
}

// QOS is the pod's quality of service class: BestEffort when no container asks for or is limited in CPU
// or memory, Guaranteed when each is limited in both to just what it asks for, else Burstable.
func QOS(p *v1.Pod) v1.PodQOSClass {
	requests, limits := v1.ResourceList{}, v1.ResourceList{}
	guaranteed := true
	for _, containers := range [][]v1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for _, c := range containers {
			addCompute(requests, asked(c.Resources))
			if addCompute(limits, c.Resources.Limits) < len(computeResources()) {
				guaranteed = false
			}
		}
	}
	if len(requests) == 0 && len(limits) == 0 {
		return v1.PodQOSBestEffort
	}
	for name, asked := range requests {
		if limit := limits[name]; limit.Cmp(asked) != 0 {
			guaranteed = false
		}
	}
	if guaranteed && len(requests) == len(limits) {
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}

// asked is what the container requests; a limit without a request is one too.
func asked(r v1.ResourceRequirements) v1.ResourceList {
	out := v1.ResourceList{}
	maps.Copy(out, r.Limits)
	maps.Copy(out, r.Requests)
	return out
}

func computeResources() []v1.ResourceName {
	return []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory}
}

// addCompute adds what more has of CPU and memory to sum and tells of how many it had any.
func addCompute(sum, more v1.ResourceList) int {
	n := 0
	for _, name := range computeResources() {
		quantity, ok := more[name]
		if !ok || quantity.Sign() <= 0 {
			continue
		}
		n++
		total := sum[name]
		total.Add(quantity)
		sum[name] = total
	}
	return n
}

// resources are in the terms of cgroup v1; the runtime converts them for v2.
func resources(c *v1.Container) *specs.LinuxResources {
	out := &specs.LinuxResources{
		Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}},
		CPU:     &specs.LinuxCPU{Shares: new(shares(c.Resources))},
	}
	if limit, ok := c.Resources.Limits[v1.ResourceCPU]; ok && limit.Sign() > 0 {
		out.CPU.Quota = new(max(limit.MilliValue()*cpuPeriod/1000, minQuota))
		out.CPU.Period = new(uint64(cpuPeriod))
	}
	if limit, ok := c.Resources.Limits[v1.ResourceMemory]; ok && limit.Sign() > 0 {
		out.Memory = &specs.LinuxMemory{Limit: new(limit.Value())}
	}
	return out
}

// shares is the container's weight when CPU is scarce: what it asks for, else its limit.
func shares(r v1.ResourceRequirements) uint64 {
	cpu := asked(r)[v1.ResourceCPU]
	return uint64(min(max(cpu.MilliValue()*1024/1000, minShares), maxShares))
}
