package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// ReasonWaitingForPods is why a pod does not run whose predecessors have not come to their result. It is no
// reason of Kubernetes'.
const ReasonWaitingForPods = "WaitingForPods"

// admit says why the pod cannot run on this machine as it is now; nil if it can. The reasons are the
// kubelet's, but a pod is not rejected for good: it waits until the reason is gone. What runs is not asked.
func (j *judge) admit() *Waiting {
	p := j.in.Pod
	if len(j.in.After) > 0 {
		var names []string
		for _, key := range j.in.After {
			names = append(names, key.String())
		}
		return &Waiting{Reason: ReasonWaitingForPods, Message: "starts after " + strings.Join(names, ", ")}
	}
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
