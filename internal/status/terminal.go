package status

import (
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// settleTerminal gives containers that never started, in a pod that has finished, the terminated
// state that the kubelet gives them, because nothing in such a pod waits any more. Containers that
// init containers prevented from starting stay waiting, and so do init containers that were never
// reached.
func settleTerminal(p *v1.Pod, s *v1.PodStatus) {
	if initialized(p, *s) {
		terminate(s.ContainerStatuses)
	}
	for i := len(s.InitContainerStatuses) - 1; i >= 0; i-- {
		if i == 0 || s.InitContainerStatuses[i].State.Waiting == nil {
			terminate(s.InitContainerStatuses[:i+1])
			return
		}
	}
}

func terminate(all []v1.ContainerStatus) {
	for i := range all {
		if all[i].State.Terminated == nil && all[i].State.Running == nil {
			all[i].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
				ExitCode: 137, Reason: pod.ReasonLost, Message: "The container never started, and the pod has ended.",
			}}
		}
	}
}
