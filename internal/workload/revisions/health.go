package revisions

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Settled is how long containers without a readiness probe must run, without a restart, to be healthy.
const Settled = 10 * time.Second

// Observed is what is known of a pod that exists.
type Observed struct {
	// Pod is as it was published last.
	Pod *v1.Pod
	// Ready is for how long the pod has been ready without a restart, as far as is known, and Shown how much of
	// that its last status has shown. They have no meaning for a pod that is not ready.
	Ready, Shown time.Duration
	// Unready is for how long the pod has not been ready, as far as is known; 0 for one that is.
	Unready time.Duration
}

// Confirming is after what time a pod is inspected again.
const Confirming = time.Second

// SettledAfter returns how long a pod must be ready to be healthy: at least minReady, and Settled if a container has no
// readiness probe.
func SettledAfter(p *v1.Pod, minReady time.Duration) time.Duration {
	probed := !slices.ContainsFunc(p.Spec.Containers, func(c v1.Container) bool { return c.ReadinessProbe == nil })
	if probed {
		return minReady
	}
	return max(minReady, Settled)
}

// HealthOf returns the health of one pod of a revision. settled is how long it must be ready.
func HealthOf(o Observed, settled time.Duration) Health {
	p := o.Pod
	if p == nil || p.DeletionTimestamp != nil {
		return Health{Reason: "it has not started"}
	}
	switch p.Status.Phase {
	case v1.PodSucceeded:
		return Health{State: Well}
	case v1.PodFailed:
		return Health{State: Broken, Reason: "it has failed" + because(p)}
	}
	if !pod.IsReady(p) {
		return Health{Reason: "it is not ready" + because(p)}
	}
	settled = SettledAfter(p, settled)
	reason := fmt.Sprintf("it was not ready for %s without a restart", settled)
	switch {
	case o.Ready < settled:
		return Health{Reason: reason, Wait: settled - o.Ready}
	case o.Shown < settled: // its status may be old: what ends is not published before it is acted on
		return Health{Reason: reason, Wait: Confirming, Unsure: true}
	}
	return Health{State: Well}
}

// Join returns the health of a revision with these pods, by name.
func Join(pods map[string]Health) Health {
	all := Health{State: Well}
	for _, name := range sorted(pods) {
		h := pods[name]
		if h.State == Well {
			continue
		}
		if all.State == Well || h.State == Broken && all.State != Broken {
			all.State, all.Reason = h.State, "pod "+name+": "+h.Reason
		}
		all.Wait = sooner(max(all.Wait, h.Wait), min(all.Wait, h.Wait))
	}
	return all
}

func sorted(pods map[string]Health) []string {
	var names []string
	for name := range pods {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// because returns what a status says of why its pod is not well, after a colon; "" if it says nothing.
func because(p *v1.Pod) string {
	if p.Status.Reason != "" || p.Status.Message != "" {
		return ": " + text(p.Status.Reason, p.Status.Message)
	}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		state, last := s.State, s.LastTerminationState.Terminated
		switch {
		case state.Terminated != nil && state.Terminated.ExitCode != 0:
			last = state.Terminated
		case state.Waiting == nil || s.Ready:
			continue
		case last == nil || state.Waiting.Reason != "CrashLoopBackOff":
			return ": " + s.Name + ": " + text(state.Waiting.Reason, state.Waiting.Message)
		}
		return fmt.Sprintf(": %s: exit code %d", s.Name, last.ExitCode)
	}
	return ""
}

func text(reason, message string) string {
	switch {
	case message == "":
		return reason
	case reason == "":
		return message
	}
	return reason + ": " + message
}
