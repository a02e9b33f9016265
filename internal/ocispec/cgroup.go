package ocispec

import (
	"path"

	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
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
	return path.Join(CgroupRoot, classDir(pod.QOS(p)), "pod"+string(p.UID))
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
	cpu, ok := r.Requests[v1.ResourceCPU]
	if !ok {
		cpu = r.Limits[v1.ResourceCPU]
	}
	return uint64(min(max(cpu.MilliValue()*1024/1000, minShares), maxShares))
}
