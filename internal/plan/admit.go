package plan

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"podrun.io/podrun/internal/pod"
)

// ReasonWaitingForPods is the reason of a pod that does not run because pods that it starts after
// have not yet succeeded or become ready. Kubernetes has no such reason.
const ReasonWaitingForPods = "WaitingForPods"

// ReasonPodSecurity is the reason of a pod that does not run because the policy does not allow the
// revision that is kept of it. Kubernetes has no such reason: there the policy judges only once.
const ReasonPodSecurity = "PodSecurity"

// ReasonNodeAffinity is the kubelet's reason of a pod that asks for other labels than the node has.
const ReasonNodeAffinity = "NodeAffinity"

// refusal returns why a pod that the policy does not allow is not started; nil if it is allowed.
func refusal(in Input) *Waiting {
	if in.Refused == "" {
		return nil
	}
	return &Waiting{Reason: ReasonPodSecurity, Message: "not started: " + in.Refused}
}

// admit returns why the pod cannot run on this machine in its current state; nil if it can. The reasons are the
// kubelet's, but the pod is not rejected for good: it waits until the cause has gone. Running pods are not checked.
func admit(in Input) *Waiting {
	if why := refusal(in); why != nil {
		return why
	}
	if len(in.After) > 0 {
		var names []string
		for _, key := range in.After {
			names = append(names, key.String())
		}
		return &Waiting{Reason: ReasonWaitingForPods, Message: "starts after " + strings.Join(names, ", ")}
	}
	if why := mismatch(in); why != nil {
		return why
	}
	return in.Machine.Lack(Requests(in.Pod))
}

// never returns why the pod cannot run on this machine whatever the other pods do; nil if it can. Plugins come and go.
func never(in Input) *Waiting {
	if why := mismatch(in); why != nil {
		return why
	}
	requests := maps.Clone(Requests(in.Pod))
	maps.DeleteFunc(requests, func(name v1.ResourceName, _ resource.Quantity) bool {
		return pod.IsDevice(name) && !in.Machine.NoPlugins
	})
	return Machine{Has: in.Machine.Has, Why: in.Machine.Why}.Lack(requests)
}

// mismatch returns why the node's labels are not those that the pod asks for; nil if they are.
func mismatch(in Input) *Waiting {
	if why := pod.NodeMismatch(in.Pod, in.NodeLabels); why != "" {
		return &Waiting{Reason: ReasonNodeAffinity, Message: why}
	}
	return nil
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
