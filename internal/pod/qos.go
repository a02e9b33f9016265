package pod

import (
	v1 "k8s.io/api/core/v1"
)

// QOS is the quality-of-service class of p, by Kubernetes' rules: Guaranteed when every container
// limits CPU and memory and requests just that, BestEffort when none requests or limits either.
func QOS(p *v1.Pod) v1.PodQOSClass {
	guaranteed, bestEffort := true, true
	for _, containers := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for _, c := range containers {
			for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
				limit, request := c.Resources.Limits[name], c.Resources.Requests[name]
				if !limit.IsZero() || !request.IsZero() {
					bestEffort = false
				}
				if limit.IsZero() || !request.IsZero() && request.Cmp(limit) != 0 {
					guaranteed = false
				}
			}
		}
	}
	switch {
	case bestEffort:
		return v1.PodQOSBestEffort
	case guaranteed:
		return v1.PodQOSGuaranteed
	default:
		return v1.PodQOSBurstable
	}
}
