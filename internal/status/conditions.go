package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// conditions returns the five conditions that Kubernetes shows for every pod.
func conditions(in Input, s v1.PodStatus, mine pod.Observed) []v1.PodCondition {
	p := in.Pod
	var seen time.Time
	if s.StartTime != nil {
		seen = s.StartTime.Time
	}
	done := s.Phase == v1.PodSucceeded || s.Phase == v1.PodFailed
	ready, reason, message := readiness(p, s, done)
	changed := lastProbeChange(in.Probed, mine, lastChange(s, seen))
	all := []v1.PodCondition{
		startable(in.Plan, mine, lastChange(s, seen)),
		initialization(p, s, seen),
		gated(p, condition(v1.PodReady, ready, changed, reason, message)),
		condition(v1.ContainersReady, ready, changed, reason, message),
		condition(v1.PodScheduled, true, seen, "", ""),
	}
	for i := range all {
		all[i].LastTransitionTime = transition(in, all[i])
	}
	return all
}

// transition returns when c's status last changed: the published time if the same status was shown
// before, and now if another one was, as in the kubelet's status manager. A condition that was not
// shown before has the time that was derived from the containers. That time is not used otherwise,
// because it changes too often: a container that exits and starts again need not change the
// condition.
func transition(in Input, c v1.PodCondition) metav1.Time {
	now := metav1.Time{Time: in.Now.Truncate(time.Second)}
	for _, before := range in.Before {
		switch {
		case before.Type != c.Type:
		case before.Status == c.Status:
			return before.LastTransitionTime
		default:
			return now
		}
	}
	if c.LastTransitionTime.IsZero() {
		return now
	}
	return c.LastTransitionTime
}

// passing returns the conditions that only some pods have: DisruptionTarget from their end on, the others temporarily.
func passing(in Input, phase v1.PodPhase) []v1.PodCondition {
	var all []v1.PodCondition
	add := func(kind v1.PodConditionType, is bool, w plan.Waiting) {
		c := condition(kind, is, in.Now, w.Reason, w.Message)
		c.LastTransitionTime = transition(in, c)
		all = append(all, c)
	}
	if plan.RestartsAllEver(in.Pod) {
		why := plan.Waiting{}
		switch {
		case phase == v1.PodSucceeded:
			why.Reason = "PodCompleted"
		case phase == v1.PodFailed:
			why.Reason = "PodFailed"
		case in.Plan.Restarting:
			why = plan.Waiting{
				Reason:  "RestartAllContainersStarted",
				Message: "container exited with restart policy rule",
			}
		}
		add(v1.AllContainersRestarting, in.Plan.Restarting, why)
	}
	if f := in.Plan.Failure; in.Plan.Completed && f != nil && f.Reason == plan.ReasonTerminated {
		add(v1.DisruptionTarget, true, plan.Waiting{Reason: v1.PodReasonTerminationByKubelet, Message: f.Message})
	}
	if why := in.Plan.ResizePending; why != nil {
		add(v1.PodResizePending, true, *why)
	}
	if why := in.Plan.Resizing; why != nil {
		add(v1.PodResizeInProgress, true, *why)
	}
	return all
}

func condition(kind v1.PodConditionType, is bool, at time.Time, reason, message string) v1.PodCondition {
	status := v1.ConditionFalse
	if is {
		status = v1.ConditionTrue
	}
	return v1.PodCondition{
		Type:               kind,
		Status:             status,
		LastTransitionTime: metav1.Time{Time: at.Truncate(time.Second)},
		Reason:             reason,
		Message:            message,
	}
}

// startable returns the condition PodReadyToStartContainers: the pod has a sandbox, and the volumes
// that its first container needs. The kubelet mounts volumes before it creates the sandbox, podrun
// after that, so what has started in the sandbox shows that volumes were mounted. changed is when a
// container last changed.
func startable(p plan.Plan, mine pod.Observed, changed time.Time) v1.PodCondition {
	if len(mine.Sandboxes) == 0 || !mine.Sandboxes[0].Ready {
		return condition(v1.PodReadyToStartContainers, false, changed, "", "")
	}
	sandbox := mine.Sandboxes[0]
	started := slices.ContainsFunc(mine.Containers, func(c pod.Container) bool { return c.SandboxID == sandbox.ID })
	if why := p.Unmounted; why != nil && !started {
		return condition(v1.PodReadyToStartContainers, false, changed, why.Reason, why.Message)
	}
	return condition(v1.PodReadyToStartContainers, true, sandbox.CreatedAt, "", "")
}

// initialization returns the condition PodInitialized, which names the init containers that are not
// complete.
func initialization(p *v1.Pod, s v1.PodStatus, seen time.Time) v1.PodCondition {
	done := lastEnd(s.InitContainerStatuses, seen)
	switch {
	case s.Phase == v1.PodSucceeded:
		return condition(v1.PodInitialized, true, done, "PodCompleted", "")
	case initialized(p, s):
		return condition(v1.PodInitialized, true, done, "", "")
	}
	return condition(v1.PodInitialized, false, seen, "ContainersNotInitialized",
		fmt.Sprintf("containers with incomplete status: %s", incomplete(p, s)))
}

// lastEnd returns when the last of the containers that succeeded finished; at if none did later.
func lastEnd(all []v1.ContainerStatus, at time.Time) time.Time {
	for _, c := range all {
		if t := c.State.Terminated; t != nil && t.ExitCode == 0 && t.FinishedAt.After(at) {
			at = t.FinishedAt.Time
		}
	}
	return at
}

// readiness reports whether all containers are ready and, if not, the reason and message in
// Kubernetes' words.
func readiness(p *v1.Pod, s v1.PodStatus, done bool) (ready bool, reason, message string) {
	switch {
	case s.Phase == v1.PodSucceeded:
		return false, "PodCompleted", ""
	case done:
		return false, "PodFailed", ""
	}
	var unready []string
	for i, c := range s.InitContainerStatuses {
		if pod.IsSidecar(&p.Spec.InitContainers[i]) && !c.Ready {
			unready = append(unready, c.Name)
		}
	}
	for _, c := range s.ContainerStatuses {
		if !c.Ready {
			unready = append(unready, c.Name)
		}
	}
	if len(unready) == 0 {
		return true, "", ""
	}
	return false, "ContainersNotReady", fmt.Sprintf("containers with unready status: [%s]", strings.Join(unready, " "))
}

// gated returns the condition Ready of p: nothing ever meets its readiness gates.
func gated(p *v1.Pod, ready v1.PodCondition) v1.PodCondition {
	if ready.Status != v1.ConditionTrue || len(p.Spec.ReadinessGates) == 0 {
		return ready
	}
	var unmet []string
	for _, gate := range p.Spec.ReadinessGates {
		unmet = append(unmet, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
	}
	return condition(v1.PodReady, false, ready.LastTransitionTime.Time, "ReadinessGatesNotReady", strings.Join(unmet, ", "))
}

// lastProbeChange returns when a hook or probe result last changed; at if none did later.
func lastProbeChange(found map[string]pod.Probed, mine pod.Observed, at time.Time) time.Time {
	for _, c := range mine.Containers {
		if since := found[c.ID].Since; since.After(at) {
			at = since
		}
	}
	return at
}

// lastChange returns when a container last started or exited; at if none did later.
func lastChange(s v1.PodStatus, at time.Time) time.Time {
	for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
		for _, t := range []*v1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if t != nil && t.FinishedAt.After(at) {
				at = t.FinishedAt.Time
			}
		}
		if r := c.State.Running; r != nil && r.StartedAt.After(at) {
			at = r.StartedAt.Time
		}
	}
	return at
}
