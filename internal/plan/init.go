package plan

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// initContainers plans for the init containers of the wanted revision, the sidecars among them
// included. Only what ran in this sandbox counts: in a new sandbox everything is initialized again.
type initContainers struct{ containers }

// sync plans for the init containers, one after the other, and keeps the sidecars among them
// running. It reports whether the pod's other containers may run.
func (s initContainers) sync() bool {
	inits := s.Pod.Spec.InitContainers
	if len(inits) > 0 && s.terminateInOtherSandboxes() {
		s.waitFrom(0)
		return false
	}
	lastStarted := s.lastStarted()
	for i := range inits {
		c := &inits[i]
		switch {
		case pod.IsSidecar(c):
			s.container(c)
			// Containers that have run after this sidecar once do not wait for it again.
			if i >= lastStarted && !s.sidecarStarted(c) {
				s.waitFrom(i + 1)
				return false
			}
		case i < lastStarted || s.done(c):
		default:
			s.initContainer(c)
			s.waitFrom(i + 1)
			return false
		}
	}
	return true
}

// terminateInOtherSandboxes terminates the instances that run in another sandbox than this one and reports
// whether there are any, or any of which it is not known.
func (s initContainers) terminateInOtherSandboxes() (alive bool) {
	for _, c := range s.mine.Containers {
		if c.SandboxID == s.sandbox.ID || !isAlive(c) {
			continue
		}
		alive = true
		if c.State == pod.Running {
			newTerminator(s.plan, s.Input).container(c, "sandbox replaced")
		}
	}
	return alive
}

// lastStarted returns the index of the last init container that ran in the sandbox, or the number of
// init containers once one of the pod's other containers has run in it.
func (s initContainers) lastStarted() int {
	ran := func(c *v1.Container) bool {
		last, _, found := s.mine.Last(s.Pod.UID, c.Name)
		return found && last.State != pod.Created && last.SandboxID == s.sandbox.ID && !s.stale(last)
	}
	inits := s.Pod.Spec.InitContainers
	if slices.ContainsFunc(s.Pod.Spec.Containers, func(c v1.Container) bool { return ran(&c) }) {
		return len(inits)
	}
	for i := len(inits) - 1; i >= 0; i-- {
		if ran(&inits[i]) {
			return i
		}
	}
	return 0
}

// waitFrom marks the init containers from the i-th on, and all other containers, as waiting for those before them.
func (s initContainers) waitFrom(i int) {
	s.plan.wait(NotYet(s.Pod), pod.AllContainers(s.Pod)[i:]...)
}

func (s initContainers) sidecarStarted(c *v1.Container) bool {
	last, lost, found := s.mine.Last(s.Pod.UID, c.Name)
	return found && !lost && last.State == pod.Running && last.SandboxID == s.sandbox.ID &&
		s.Probed[last.ID].IsStarted(c)
}

// done reports whether the init container has succeeded in this sandbox, by itself, and is not to be restarted.
func (s initContainers) done(c *v1.Container) bool {
	last, _, found := s.mine.Last(s.Pod.UID, c.Name)
	succeeded := found && last.State == pod.Exited && last.ExitCode == 0 && !s.restartsOnRequest(last) && !s.cut(last)
	return succeeded && last.SandboxID == s.sandbox.ID && !s.stale(last)
}

// initContainer plans for an init container that has not succeeded in this sandbox.
func (s initContainers) initContainer(c *v1.Container) {
	last, _, found := s.mine.Last(s.Pod.UID, c.Name)
	if found && last.State == pod.Exited && last.ExitCode == 0 && !restartsAll(c, last) {
		why := "new sandbox"
		switch {
		case s.stale(last):
			why = "all containers restart"
		case s.restartsOnRequest(last):
			why = "restart requested"
		case last.SandboxID == s.sandbox.ID:
			why = "it had to end"
		}
		s.start(c, StartContainer{Container: c.Name, Attempt: last.Attempt + 1, Why: why})
		return
	}
	s.container(c)
}

func isInit(p *v1.Pod, name string) bool {
	return slices.ContainsFunc(p.Spec.InitContainers, func(c v1.Container) bool { return c.Name == name })
}
