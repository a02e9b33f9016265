package ocispec

import (
	"path"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// CgroupRoot is the cgroup that all of podrun's pods are under.
const CgroupRoot = "/podrun"

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

// The cgroups of the pods of two of the classes; guaranteed ones are in CgroupRoot itself.
const (
	CgroupBurstable  = CgroupRoot + "/burstable"
	CgroupBestEffort = CgroupRoot + "/besteffort"
)

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
