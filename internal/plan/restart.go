package plan

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// restarts reports whether an exited instance of c is followed by another one. It is not called for
// an init container that succeeded: that one is done whatever its policy.
func (in reading) restarts(c *v1.Container, last pod.Container) bool {
	// An instance that had to be terminated has not completed, whatever its exit code.
	failed := in.Probed[last.ID].Failed
	return in.stale(last) || ShouldRestart(in.Pod, c, last.ExitCode) ||
		failed != nil && (failed.Resize || policyOf(in.Pod, c) != v1.RestartPolicyNever)
}

// policyOf returns the container's own restart policy, else the pod's.
func policyOf(p *v1.Pod, c *v1.Container) v1.RestartPolicy {
	if c.RestartPolicy != nil {
		return v1.RestartPolicy(*c.RestartPolicy)
	}
	return p.Spec.RestartPolicy
}

// ShouldRestart reports whether a container that exited with code is restarted: by the first
// restart rule that matches the code, else by the container's own policy, else by the pod's, as in
// Kubernetes since 1.35.
func ShouldRestart(p *v1.Pod, c *v1.Container, code int) bool {
	if ruleFor(c, code) != nil {
		return true // both actions restart the container
	}
	switch policyOf(p, c) {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return code != 0
	default:
		return true
	}
}

// ruleFor returns the first of c's restart rules that matches the exit code; nil if none does.
func ruleFor(c *v1.Container, code int) *v1.ContainerRestartRule {
	if c.RestartPolicy == nil {
		return nil
	}
	for i := range c.RestartPolicyRules {
		r := &c.RestartPolicyRules[i]
		if r.ExitCodes == nil {
			continue
		}
		in := slices.Contains(r.ExitCodes.Values, int32(code))
		if in && r.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn ||
			!in && r.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpNotIn {
			return r
		}
	}
	return nil
}

// over reports whether the wanted revision has finished, and why: its running instances are
// terminated, and nothing of it is started again.
func (in reading) over(o pod.Observed) (why string, over bool) {
	if in.Evicted != "" {
		return "evicted", true
	}
	if why, ended := in.ended(o); ended {
		return why, true
	}
	return "deadline exceeded", in.late(o)
}

// ended reports whether all but the sidecars of the wanted revision have exited and nothing of it
// will be started again.
func (in reading) ended(o pod.Observed) (why string, ended bool) {
	if in.initFailed(o) {
		return "initialization failed", true
	}
	for i := range in.Pod.Spec.Containers {
		c := &in.Pod.Spec.Containers[i]
		last, _, found := o.Last(in.Pod.UID, c.Name)
		if !found || last.State != pod.Exited || in.restarts(c, last) {
			return "", false
		}
	}
	return "pod completed", true
}

// deadline returns the time until which the pod may be active.
func (in reading) deadline() (at time.Time, has bool) {
	seconds := in.Pod.Spec.ActiveDeadlineSeconds
	if seconds == nil || in.Since.IsZero() {
		return time.Time{}, false
	}
	return in.Since.Add(time.Duration(*seconds) * time.Second), true
}

// late reports whether the pod had not finished when its deadline passed. It depends on recorded
// times only, so that the result stays the same whatever exit codes the terminated containers
// return.
func (in reading) late(o pod.Observed) bool {
	deadline, has := in.deadline()
	if !has || in.Now.Before(deadline) {
		return false
	}
	if _, ended := in.ended(o); !ended {
		return true
	}
	for _, c := range pod.AllContainers(in.Pod) {
		last, _, found := o.Last(in.Pod.UID, c.Name)
		if found && pod.SidecarOrder(in.Pod, c.Name) == 0 && !last.FinishedAt.Before(deadline) {
			return true
		}
	}
	return false
}
