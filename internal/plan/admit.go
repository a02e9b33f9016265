package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// admit says why the pod cannot run on this machine as it is now; nil if it can. The reasons are the
// kubelet's, but a pod is not rejected for good: it waits until the reason is gone. What runs is not asked.
func (j *judge) admit() *Waiting {
	p := j.in.Pod
	var missing []string
	for _, key := range slices.Sorted(maps.Keys(p.Spec.NodeSelector)) {
		if value, ok := j.in.NodeLabels[key]; !ok || value != p.Spec.NodeSelector[key] {
			missing = append(missing, key+"="+p.Spec.NodeSelector[key])
		}
	}
	if len(missing) > 0 {
		return &Waiting{Reason: "NodeAffinity", Message: "the node does not have what nodeSelector asks for: " + strings.Join(missing, ", ")}
	}
	wanted := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})[v1.ResourceMemory]
	if has, known := j.in.Node[v1.ResourceMemory]; known && wanted.Cmp(has) > 0 {
		return &Waiting{Reason: "OutOfmemory", Message: fmt.Sprintf("the pod requests %s of memory, and the node has %s", wanted.String(), has.String())}
	}
	return nil
}
