package pod

import (
	v1 "k8s.io/api/core/v1"
)

// QOS returns the quality-of-service class of p by Kubernetes' rules: Guaranteed if every container
// limits CPU and memory and requests the same amounts, BestEffort if none requests or limits
// either. A request of zero is one, so that it differs from a limit. Resources of the pod as a
// whole, if there are any, count instead of its containers'.
func QOS(p *v1.Pod) v1.PodQOSClass {
	var all []v1.ResourceRequirements
	if own := p.Spec.Resources; own != nil && len(own.Limits)+len(own.Requests) > 0 {
		all = append(all, *own)
	} else {
		for _, c := range AllContainers(p) {
			all = append(all, c.Resources)
		}
	}
	guaranteed, bestEffort := true, true
	for _, r := range all {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			limit := r.Limits[name]
			request, given := r.Requests[name]
			if !given {
				request = limit
			}
			bestEffort = bestEffort && limit.IsZero() && request.IsZero()
			guaranteed = guaranteed && !limit.IsZero() && request.Cmp(limit) == 0
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
