package plan

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"podrun.io/podrun/internal/pod"
)

// ReasonWaitingForPods is the reason of a pod that does not run because pods that it starts after
// have not yet succeeded or become ready. Kubernetes has no such reason.
const ReasonWaitingForPods = "WaitingForPods"

// ReasonPodSecurity is the reason of a pod that does not run because the policy does not allow the
// revision that is kept of it. Kubernetes has no such reason: there the policy judges only once.
const ReasonPodSecurity = "PodSecurity"

// refusal returns why a pod that the policy does not allow is not started; nil if it is allowed.
func refusal(in Input) *Waiting {
	if in.Refused == "" {
		return nil
	}
	return &Waiting{Reason: ReasonPodSecurity, Message: "not started: " + in.Refused}
}

// admit returns why the pod cannot run on this machine in its current state; nil if it can. The
// reasons are the kubelet's, but the pod is not rejected for good: it waits until the cause has
// gone. Running pods are not checked.
func admit(in Input) *Waiting {
	if why := refusal(in); why != nil {
		return why
	}
	p := in.Pod
	if len(in.After) > 0 {
		var names []string
		for _, key := range in.After {
			names = append(names, key.String())
		}
		return &Waiting{Reason: ReasonWaitingForPods, Message: "starts after " + strings.Join(names, ", ")}
	}
	var missing []string
	for _, key := range slices.Sorted(maps.Keys(p.Spec.NodeSelector)) {
		if value, ok := in.NodeLabels[key]; !ok || value != p.Spec.NodeSelector[key] {
			missing = append(missing, key+"="+p.Spec.NodeSelector[key])
		}
	}
	if len(missing) > 0 {
		return &Waiting{
			Reason:  "NodeAffinity",
			Message: "the node does not have what nodeSelector asks for: " + strings.Join(missing, ", "),
		}
	}
	if !matchesNode(p, in.NodeLabels) {
		return &Waiting{
			Reason:  "NodeAffinity",
			Message: "the node's labels do not match the required node affinity; see --node-labels",
		}
	}
	return in.Machine.Lack(Requests(p))
}

// matchesNode reports whether the node has what the required node affinity of p asks for. A term that
// cannot be used matches nothing, as by the kubelet.
func matchesNode(p *v1.Pod, labels map[string]string) bool {
	if p.Spec.Affinity == nil {
		return true
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.Spec.NodeName, Labels: labels}}
	matches, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(node)
	return matches && err == nil
}

// Requests returns what p as a whole requests of the machine; nil if it requests nothing.
func Requests(p *v1.Pod) v1.ResourceList {
	if pod.QOS(p) == v1.PodQOSBestEffort && !requestsOther(p) {
		return nil // avoids the sum for most pods
	}
	return resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
}

// requestsOther reports whether p requests anything beside CPU and memory.
func requestsOther(p *v1.Pod) bool {
	return len(p.Spec.Overhead) > 0 || slices.ContainsFunc(pod.AllContainers(p), func(c *v1.Container) bool {
		return len(c.Resources.Requests) > 0
	})
}
