package plan

import (
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// A restart generation is the time between two exits that restart all containers of the pod
// (KEP-5532). Instances of an earlier generation are killed without grace and started again, init
// containers too, in the same sandbox, as in the kubelet. Unlike in the kubelet, a container that
// causes such restarts repeatedly waits for its back-off.

// restartGenerationOf returns the restart generation that the wanted revision is in.
func restartGenerationOf(p *v1.Pod, o pod.Observed) int {
	round := 0
	if p == nil || !RestartsAllEver(p) {
		return round
	}
	mine, _ := o.Split(p.UID)
	for _, c := range pod.AllContainers(p) {
		for _, all := range [][]pod.Container{mine.Remembered, mine.Containers} {
			for _, instance := range all {
				if instance.Name != c.Name {
					continue
				}
				round = max(round, instance.RestartGeneration)
				if restartsAll(c, instance) {
					round = max(round, instance.RestartGeneration+1)
				}
			}
		}
	}
	return round
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
func (in reading) stale(c pod.Container) bool { return c.RestartGeneration < in.generation }

// endGeneration kills the live instances of earlier restart generations and reports whether there
// are any.
func (p *planner) endGeneration(o pod.Observed) (alive bool) {
	for _, c := range o.Containers {
		if p.in.stale(c) && lives(c) {
			alive = true
			p.kill(c, "all containers restart")
		}
	}
	return alive
}
