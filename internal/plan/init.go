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
func (j *judge) initialize(o pod.Observed, sandbox pod.Sandbox) bool {
	inits := j.in.Pod.Spec.InitContainers
	if len(inits) > 0 && j.stopStrangers(o, sandbox) {
		j.waitFrom(0)
		return false
	}
	furthest := j.furthest(o, sandbox)
	for i := range inits {
		c := &inits[i]
		switch {
		case pod.IsSidecar(c):
			j.container(o, sandbox, c)
			// Containers that have run after this sidecar once do not wait for it again.
			if i >= furthest && !j.sidecarStarted(o, sandbox, c) {
				j.waitFrom(i + 1)
				return false
			}
		case i < furthest || j.initDone(o, sandbox, c):
		default:
			j.initContainer(o, sandbox, c)
			j.waitFrom(i + 1)
			return false
		}
	}
	return true
}

// stopStrangers stops the instances that run in another sandbox than this one and reports whether
// there are any, or any of which it is not known.
func (j *judge) stopStrangers(o pod.Observed, sandbox pod.Sandbox) (alive bool) {
	for _, c := range o.Containers {
		if c.SandboxID == sandbox.ID || !lives(c) {
			continue
		}
		alive = true
		if c.State == pod.Running {
			j.stop(c, time.Time{}, "sandbox replaced")
		}
	}
	return alive
}

// furthest returns the index of the last init container that ran in the sandbox, or the number of
// init containers once one of the pod's other containers has run in it.
func (j *judge) furthest(o pod.Observed, sandbox pod.Sandbox) int {
	ran := func(c *v1.Container) bool {
		last, _, found := o.Last(j.in.Pod.UID, c.Name)
		return found && last.State != pod.Created && last.SandboxID == sandbox.ID && !j.stale(last)
	}
	inits := j.in.Pod.Spec.InitContainers
	for i := range j.in.Pod.Spec.Containers {
		if ran(&j.in.Pod.Spec.Containers[i]) {
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
func (j *judge) waitFrom(i int) {
	for _, c := range pod.AllContainers(j.in.Pod)[i:] {
		j.plan.Waiting[c.Name] = j.notYet()
	}
}

func (j *judge) sidecarStarted(o pod.Observed, sandbox pod.Sandbox, c *v1.Container) bool {
	last, lost, found := o.Last(j.in.Pod.UID, c.Name)
	return found && !lost && last.State == pod.Running && last.SandboxID == sandbox.ID &&
		j.in.Probed[last.ID].IsStarted(c)
}

func (j *judge) initDone(o pod.Observed, sandbox pod.Sandbox, c *v1.Container) bool {
	last, _, found := o.Last(j.in.Pod.UID, c.Name)
	return found && last.State == pod.Exited && last.ExitCode == 0 && last.SandboxID == sandbox.ID && !j.stale(last)
}

// initContainer plans for an init container that has not succeeded in this sandbox.
func (j *judge) initContainer(o pod.Observed, sandbox pod.Sandbox, c *v1.Container) {
	last, _, found := o.Last(j.in.Pod.UID, c.Name)
	if found && last.State == pod.Exited && last.ExitCode == 0 && !restartsAll(c, last) {
		why := "new sandbox"
		if j.stale(last) {
			why = "all containers restart"
		}
		j.start(c, StartContainer{Container: c.Name, Attempt: last.Attempt + 1, Why: why})
		return
	}
	j.container(o, sandbox, c)
}

func (j *judge) isInit(name string) bool {
	return slices.ContainsFunc(j.in.Pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == name })
}

// initFailed reports that an init container has failed and is not restarted.
func (j *judge) initFailed(o pod.Observed) bool {
	return slices.ContainsFunc(j.in.Pod.Spec.InitContainers, func(c v1.Container) bool {
		last, _, found := o.Last(j.in.Pod.UID, c.Name)
		return found && last.State == pod.Exited && last.ExitCode != 0 && !j.restarts(&c, last)
	})
}
