package resources

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// held returns a copy of p that wants for each container at least what its instance may run with: see
// runtime.Resize. A limit exists only if the instance has one too. So also for p as a whole.
func held(p *v1.Pod, running map[string]string) *v1.Pod {
	p = p.DeepCopy()
	for _, c := range pod.AllContainers(p) {
		spelled, runs := running[c.Name]
		if !runs {
			continue
		}
		for one := range strings.SplitSeq(spelled, ";") {
			own, pods := pod.ParseResources(one)
			raise(&c.Resources, own)
			if p.Spec.Resources != nil {
				raise(p.Spec.Resources, pods)
			}
		}
	}
	return p
}

// raise raises requests and limits to those of has, where these are higher.
func raise(r *v1.ResourceRequirements, has v1.ResourceRequirements) {
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if request, ok := has.Requests[name]; ok && request.Cmp(r.Requests[name]) > 0 {
			if r.Requests == nil {
				r.Requests = v1.ResourceList{}
			}
			r.Requests[name] = request
		}
		limit, limited := has.Limits[name]
		if wanted, ok := r.Limits[name]; ok && limited && limit.Cmp(wanted) > 0 {
			r.Limits[name] = limit
		}
		if !limited {
			delete(r.Limits, name)
		}
	}
}
