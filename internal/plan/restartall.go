package plan

import (
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// A round is the time between two ends that have all containers restart (KEP-5532). What was started in an
// earlier round than this is ended without grace and started anew, init containers too, in the same sandbox,
// as the kubelet has it; unlike there, who causes it again and again waits its back-off.

// restartGenerationOf is the round that the wanted revision is in.
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

// RestartsAllEver reports that an end of one of p's containers may have all restart.
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

// restartsAll reports that the instance's end has all containers restart.
func restartsAll(c *v1.Container, instance pod.Container) bool {
	rule := ruleFor(c, instance.ExitCode)
	return instance.State == pod.Exited && rule != nil && rule.Action == v1.ContainerRestartRuleActionRestartAllContainers
}

// stale reports that the instance is of an earlier round.
func (j *judge) stale(c pod.Container) bool { return c.RestartGeneration < j.restartGeneration }

// endGeneration ends what lives of earlier rounds and reports whether anything does.
func (j *judge) endGeneration(o pod.Observed) (alive bool) {
	for _, c := range o.Containers {
		if j.stale(c) && lives(c) {
			alive = true
			j.kill(c, "all containers restart")
		}
	}
	return alive
}
