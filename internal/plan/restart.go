package plan

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// restarts reports whether an exited instance of c is followed by another one. It is not called for
// an init container that succeeded: that one is done whatever its policy.
func (j *judge) restarts(c *v1.Container, last pod.Container) bool {
	// An instance that had to be terminated has not completed, whatever its exit code.
	failed := j.in.Probed[last.ID].Failed
	return j.stale(last) || ShouldRestart(j.in.Pod, c, last.ExitCode) ||
		failed != nil && (failed.Resize || policyOf(j.in.Pod, c) != v1.RestartPolicyNever)
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
func (j *judge) over(o pod.Observed) (why string, over bool) {
	if j.in.Evicted != "" {
		return "evicted", true
	}
	if why, ended := j.ended(o); ended {
		return why, true
	}
	return "deadline exceeded", j.late(o)
}

// ended reports whether all but the sidecars of the wanted revision have exited and nothing of it
// will be started again.
func (j *judge) ended(o pod.Observed) (why string, ended bool) {
	if j.initFailed(o) {
		return "initialization failed", true
	}
	for i := range j.in.Pod.Spec.Containers {
		c := &j.in.Pod.Spec.Containers[i]
		last, _, found := o.Last(j.in.Pod.UID, c.Name)
		if !found || last.State != pod.Exited || j.restarts(c, last) {
			return "", false
		}
	}
	return "pod completed", true
}

// deadline returns the time until which the pod may be active.
func (j *judge) deadline() (at time.Time, has bool) {
	seconds := j.in.Pod.Spec.ActiveDeadlineSeconds
	if seconds == nil || j.in.Since.IsZero() {
		return time.Time{}, false
	}
	return j.in.Since.Add(time.Duration(*seconds) * time.Second), true
}

// late reports whether the pod had not finished when its deadline passed. It depends on recorded
// times only, so that the result stays the same whatever exit codes the terminated containers
// return.
func (j *judge) late(o pod.Observed) bool {
	deadline, has := j.deadline()
	if !has || j.in.Now.Before(deadline) {
		return false
	}
	if _, ended := j.ended(o); !ended {
		return true
	}
	for _, c := range pod.AllContainers(j.in.Pod) {
		last, _, found := o.Last(j.in.Pod.UID, c.Name)
		if found && pod.SidecarOrder(j.in.Pod, c.Name) == 0 && !last.FinishedAt.Before(deadline) {
			return true
		}
	}
	return false
}
