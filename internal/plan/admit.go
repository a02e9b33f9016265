package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"podrun.io/podrun/internal/pod"
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
	if lack := Lacking(Requests(p), j.in.Used, j.in.Node); lack != nil {
		return lack
	}
	return nil
}

// Requests are what p as a whole requests of the machine; nil when that is nothing.
func Requests(p *v1.Pod) v1.ResourceList {
	if pod.QOS(p) == v1.PodQOSBestEffort && !requestsOther(p) {
		return nil // most pods: not worth a sum
	}
	return resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
}

// requestsOther reports that p requests something beside CPU and memory.
func requestsOther(p *v1.Pod) bool {
	return len(p.Spec.Overhead) > 0 || slices.ContainsFunc(pod.AllContainers(p), func(c *v1.Container) bool { return len(c.Resources.Requests) > 0 })
}

// Lacking says which resource a pod with these requests cannot have of what the machine has, with what others
// have used; nil if it can have all. Reason and message are the kubelet's, and so is the order.
func Lacking(requests, used, has v1.ResourceList) *Waiting {
	order := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		if !slices.Contains(order, name) {
			order = append(order, name)
		}
	}
	for _, name := range order {
		wanted, taken := requests[name], used[name]
		capacity, known := has[name]
		if !known && !pod.IsDevice(name) || wanted.IsZero() {
			continue
		}
		sum := wanted.DeepCopy()
		sum.Add(taken)
		if sum.Cmp(capacity) <= 0 {
			continue
		}
		value := func(q resource.Quantity) int64 {
			if name == v1.ResourceCPU {
				return q.MilliValue()
			}
			return q.Value()
		}
		if !known {
			return &Waiting{Reason: "OutOf" + string(name), Message: fmt.Sprintf("the devices of this node's --node-config do not name %s", name)}
		}
		return &Waiting{Reason: "OutOf" + string(name), Message: fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
			name, value(wanted), value(taken), value(capacity))}
	}
	return nil
}
