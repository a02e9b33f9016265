package plan

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// restarts says whether an ended instance of c is to be followed by another. An init container that
// succeeded is not asked about: it is done whatever its policy.
func (j *judge) restarts(c *v1.Container, last pod.Container) bool {
	// One that had to be ended has not completed, whatever code it made of that.
	failed := j.in.Probed[last.ID].Failed
	return j.stale(last) || ShouldRestart(j.in.Pod, c, last.ExitCode) ||
		failed != nil && (failed.Resize || policyOf(j.in.Pod, c) != v1.RestartPolicyNever)
}

// policyOf is the container's own policy, else the pod's.
func policyOf(p *v1.Pod, c *v1.Container) v1.RestartPolicy {
	if c.RestartPolicy != nil {
		return v1.RestartPolicy(*c.RestartPolicy)
	}
	return p.Spec.RestartPolicy
}

// ShouldRestart says whether a container that ended with code is to run again: the first rule that matches
// the code says so, else the container's own policy, else the pod's, as Kubernetes has it since 1.35.
func ShouldRestart(p *v1.Pod, c *v1.Container, code int) bool {
	if ruleFor(c, code) != nil {
		return true // either action does
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

// ruleFor is the first of c's rules that an end with code matches; nil if none does.
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
		if in && r.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn || !in && r.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpNotIn {
			return r
		}
	}
	return nil
}

// over reports that the wanted revision has come to its end, and why: what lives of it is to end, and
// nothing of it will run again.
func (j *judge) over(o pod.Observed) (why string, over bool) {
	if j.in.Evicted != "" {
		return "evicted", true
	}
	if why, ended := j.ended(o); ended {
		return why, true
	}
	return "deadline exceeded", j.late(o)
}

// ended reports that nothing but sidecars of the wanted revision lives, and that nothing will run again.
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

// deadline is when the pod may be active no longer.
func (j *judge) deadline() (at time.Time, has bool) {
	seconds := j.in.Pod.Spec.ActiveDeadlineSeconds
	if seconds == nil || j.in.Since.IsZero() {
		return time.Time{}, false
	}
	return j.in.Since.Add(time.Duration(*seconds) * time.Second), true
}

// late reports that the pod had not come to its end when its deadline passed. It goes by what is recorded,
// so that the answer stays, whatever the containers said when they were ended.
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
