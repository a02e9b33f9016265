package timeline

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// podWaits returns what a pod waits for as a whole before anything of it is started: for another pod, or for resources.
func podWaits(p *v1.Pod, now time.Time) (span Span, waits bool) {
	if p.Status.Phase != v1.PodPending || p.Status.Reason == "" {
		return Span{}, false
	}
	return Span{Kind: Waiting, Detail: cut(reasonAnd(p.Status.Reason, p.Status.Message)), Begin: now}, true
}

func reasonAnd(reason, message string) string {
	if message == "" {
		return reason
	}
	return reason + ": " + message
}

// waitsFor returns the reason of a waiting container, and for what or for whom it waits as far as that is known. It
// stays the same as long as it waits for the same.
func waitsFor(p *v1.Pod, s *v1.ContainerStatus) string {
	reason, message := s.State.Waiting.Reason, s.State.Waiting.Message
	switch {
	case s.LastTerminationState.Terminated != nil:
		message = "" // only how long; that it has failed is a span of its own
	case message == "":
		message = before(p, s.Name)
	}
	return reasonAnd(reason, message)
}

// before returns the init container that a container of p starts after, and that is not done yet; "" if there is none.
func before(p *v1.Pod, name string) string {
	statuses := map[string]v1.ContainerStatus{}
	for _, s := range p.Status.InitContainerStatuses {
		statuses[s.Name] = s
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if c.Name == name {
			break
		}
		s := statuses[c.Name]
		switch ended := s.State.Terminated; {
		case pod.IsSidecar(c):
			if s.Started == nil || !*s.Started {
				return "sidecar " + c.Name
			}
		case ended == nil || ended.ExitCode != 0:
			return "init container " + c.Name
		}
	}
	return ""
}
