package plan

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// restarts reports whether an exited instance of c is followed by another one. It is not called for
// an init container that succeeded: that one is done whatever its policy.
func (r revision) restarts(c *v1.Container, last pod.Container) bool {
	// An instance that had to be terminated has not completed, whatever its exit code.
	failed := r.Probed[last.ID].Failed
	return r.stale(last) || r.cut(last) || ShouldRestart(r.Pod, c, last.ExitCode) ||
		failed != nil && (failed.Resize || failed.Requested || policyOf(r.Pod, c) != v1.RestartPolicyNever)
}

// isFollowed reports whether an exited instance of c is followed by another one, for whatever reason.
func (r revision) isFollowed(c *v1.Container, last pod.Container) bool {
	return r.restarts(c, last) || r.bygone(c, last)
}

// cut reports whether an exited instance was asked to exit for no reason of its own, and is followed by another one.
func (r revision) cut(last pod.Container) bool {
	asked := cmp.Or(r.Signalled[last.ID].Asked, last.Notes.Asked)
	own := r.Probed[last.ID].Failed != nil || last.Notes.Failed != nil
	return !asked.IsZero() && !last.FinishedAt.Before(asked) && !own && r.goesOn
}

// bygone reports whether an exited instance of c, which is not restarted, is followed by another one nevertheless,
// because it ran in an earlier boot, or in a sandbox before the one that is ready. In the second case, as for the
// kubelet's computePodActions, a success is final unless the policy is Never.
func (r revision) bygone(c *v1.Container, last pod.Container) bool {
	boxes := r.mine.Sandboxes
	replaced := len(boxes) > 0 && boxes[0].Ready && boxes[0].ID != last.SandboxID
	return r.goesOn && (last.Boot != r.Boot || replaced && policyOf(r.Pod, c) == v1.RestartPolicyNever)
}

// since reports whether a container has run since the boot, or in the sandbox, that makes an instance bygone.
func (r revision) since(last pod.Container) bool {
	return r.anyLast(func(other pod.Container) bool {
		return other.Boot == r.Boot && (last.Boot != r.Boot || other.SandboxID == r.mine.Sandboxes[0].ID)
	})
}

// anyLast reports whether a container's last instance is as asked.
func (r revision) anyLast(is func(pod.Container) bool) bool {
	return slices.ContainsFunc(pod.AllContainers(r.Pod), func(c *v1.Container) bool {
		last, _, found := r.mine.Last(r.Pod.UID, c.Name)
		return found && is(last)
	})
}

// policyOf returns the container's own restart policy, else the pod's.
func policyOf(p *v1.Pod, c *v1.Container) v1.RestartPolicy {
	if c.RestartPolicy != nil {
		return v1.RestartPolicy(*c.RestartPolicy)
	}
	return p.Spec.RestartPolicy
}

// ShouldRestart reports whether a container that exited with code is restarted: by the first restart rule that matches
// the code, else by the container's own policy, else by the pod's, as in Kubernetes since 1.35.
func ShouldRestart(p *v1.Pod, c *v1.Container, code int) bool {
	if ruleFor(c, code) != nil {
		return true // both actions restart the container
	}
	policy := policyOf(p, c)
	return policy != v1.RestartPolicyNever && (policy != v1.RestartPolicyOnFailure || code != 0)
}

// ruleFor returns the first of c's restart rules that matches the exit code; nil if none does.
func ruleFor(c *v1.Container, code int) *v1.ContainerRestartRule {
	if c.RestartPolicy == nil {
		return nil
	}
	for i := range c.RestartPolicyRules {
		rule := &c.RestartPolicyRules[i]
		if rule.ExitCodes == nil {
			continue
		}
		in := slices.Contains(rule.ExitCodes.Values, int32(code))
		if in && rule.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn ||
			!in && rule.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpNotIn {
			return rule
		}
	}
	return nil
}
