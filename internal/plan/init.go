package plan

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// initialize plans for the init containers, one after the other, and keeps the sidecars among them
// running. It reports whether the pod's other containers may run. Only what ran in this sandbox
// counts: in a new sandbox everything is initialized again.
func (p *planner) initialize(o pod.Observed, sandbox pod.Sandbox) bool {
	inits := p.in.Pod.Spec.InitContainers
	if len(inits) > 0 && p.stopStrangers(o, sandbox) {
		p.waitFrom(0)
		return false
	}
	furthest := p.in.furthest(o, sandbox)
	for i := range inits {
		c := &inits[i]
		switch {
		case pod.IsSidecar(c):
			p.container(o, sandbox, c)
			// Containers that have run after this sidecar once do not wait for it again.
			if i >= furthest && !p.in.sidecarStarted(o, sandbox, c) {
				p.waitFrom(i + 1)
				return false
			}
		case i < furthest || p.in.initDone(o, sandbox, c):
		default:
			p.initContainer(o, sandbox, c)
			p.waitFrom(i + 1)
			return false
		}
	}
	return true
}

// stopStrangers stops the instances that run in another sandbox than this one and reports whether
// there are any, or any of which it is not known.
func (p *planner) stopStrangers(o pod.Observed, sandbox pod.Sandbox) (alive bool) {
	for _, c := range o.Containers {
		if c.SandboxID == sandbox.ID || !lives(c) {
			continue
		}
		alive = true
		if c.State == pod.Running {
			c.Grace = p.in.graceOf(c, nil)
			p.stop(c, time.Time{}, "sandbox replaced")
		}
	}
	return alive
}

// furthest returns the index of the last init container that ran in the sandbox, or the number of
// init containers once one of the pod's other containers has run in it.
func (in reading) furthest(o pod.Observed, sandbox pod.Sandbox) int {
	ran := func(c *v1.Container) bool {
		last, _, found := o.Last(in.Pod.UID, c.Name)
		return found && last.State != pod.Created && last.SandboxID == sandbox.ID && !in.stale(last)
	}
	inits := in.Pod.Spec.InitContainers
	for i := range in.Pod.Spec.Containers {
		if ran(&in.Pod.Spec.Containers[i]) {
			return len(inits)
		}
	}
	for i := len(inits) - 1; i >= 0; i-- {
		if ran(&inits[i]) {
			return i
		}
	}
	return 0
}

// waitFrom marks the init containers from the i-th on, and all other containers, as waiting for
// those before them.
func (p *planner) waitFrom(i int) {
	for _, c := range pod.AllContainers(p.in.Pod)[i:] {
		p.plan.Waiting[c.Name] = p.in.notYet()
	}
}

func (in reading) sidecarStarted(o pod.Observed, sandbox pod.Sandbox, c *v1.Container) bool {
	last, lost, found := o.Last(in.Pod.UID, c.Name)
	return found && !lost && last.State == pod.Running && last.SandboxID == sandbox.ID &&
		in.Probed[last.ID].IsStarted(c)
}

func (in reading) initDone(o pod.Observed, sandbox pod.Sandbox, c *v1.Container) bool {
	last, _, found := o.Last(in.Pod.UID, c.Name)
	return found && last.State == pod.Exited && last.ExitCode == 0 && last.SandboxID == sandbox.ID && !in.stale(last)
}

// initContainer plans for an init container that has not succeeded in this sandbox.
func (p *planner) initContainer(o pod.Observed, sandbox pod.Sandbox, c *v1.Container) {
	last, _, found := o.Last(p.in.Pod.UID, c.Name)
	if found && last.State == pod.Exited && last.ExitCode == 0 && !restartsAll(c, last) {
		why := "new sandbox"
		if p.in.stale(last) {
			why = "all containers restart"
		}
		p.start(c, StartContainer{Container: c.Name, Attempt: last.Attempt + 1, Why: why})
		return
	}
	p.container(o, sandbox, c)
}

func (in reading) isInit(name string) bool {
	return slices.ContainsFunc(in.Pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == name })
}

// initFailed reports that an init container has failed and is not restarted.
func (in reading) initFailed(o pod.Observed) bool {
	return slices.ContainsFunc(in.Pod.Spec.InitContainers, func(c v1.Container) bool {
		last, _, found := o.Last(in.Pod.UID, c.Name)
		return found && last.State == pod.Exited && last.ExitCode != 0 && !in.restarts(&c, last)
	})
}
