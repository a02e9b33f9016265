package plan

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// A restart generation is the time between two exits that restart all containers of the pod (KEP-5532). Instances of an
// earlier generation are killed without grace and started again, init containers too, in the same sandbox, as in the
// kubelet. Unlike in the kubelet, a container that causes such restarts repeatedly waits for its back-off.

// restartGenerationOf returns the restart generation that the revision p is in, of which mine was observed.
func restartGenerationOf(p *v1.Pod, mine pod.Observed) int {
	generation := 0
	if !RestartsAllEver(p) {
		return generation
	}
	for _, c := range pod.AllContainers(p) {
		for _, instance := range slices.Concat(mine.Remembered, mine.Containers) {
			if instance.Name != c.Name {
				continue
			}
			generation = max(generation, instance.RestartGeneration)
			if restartsAll(c, instance) {
				generation = max(generation, instance.RestartGeneration+1)
			}
		}
	}
	return generation
}

// RestartsAllEver reports whether an exit of one of p's containers can restart all of them.
func RestartsAllEver(p *v1.Pod) bool {
	for _, c := range pod.AllContainers(p) {
		for _, rule := range c.RestartPolicyRules {
			if rule.Action == v1.ContainerRestartRuleActionRestartAllContainers {
				return true
			}
		}
	}
	return false
}

// restartsAll reports whether the exit of the instance restarts all containers.
func restartsAll(c *v1.Container, instance pod.Container) bool {
	rule := ruleFor(c, instance.ExitCode)
	return instance.State == pod.Exited && rule != nil &&
		rule.Action == v1.ContainerRestartRuleActionRestartAllContainers
}

// stale reports whether the instance belongs to an earlier restart generation.
func (r revision) stale(c pod.Container) bool { return c.RestartGeneration < r.restartGeneration }

// endGeneration kills the live instances of earlier restart generations and reports whether there are any.
func endGeneration(plan *Plan, r revision) (alive bool) {
	for _, c := range r.mine.Containers {
		if r.stale(c) && isAlive(c) {
			alive = true
			newTerminator(plan, r.Input).kill(c, "all containers restart")
		}
	}
	return alive
}
