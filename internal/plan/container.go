package plan

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// containers plans for the containers of the wanted revision in its sandbox.
type containers struct {
	revision
	plan    *Plan
	sandbox pod.Sandbox
}

// sync plans for all but the init containers. A container that has not run yet waits while the
// postStart hook of one before it is due or running, as in Kubernetes.
func (s containers) sync() {
	hooking := false
	for i := range s.Pod.Spec.Containers {
		c := &s.Pod.Spec.Containers[i]
		last, _, found := s.mine.Last(s.Pod.UID, c.Name)
		ran := found && last.State != pod.Created && !s.stale(last)
		if hooking && !ran {
			s.plan.wait(NotYet(s.Pod), c)
			continue
		}
		s.container(c)
		_, failed := s.Failures[c.Name]
		due := c.Lifecycle != nil && c.Lifecycle.PostStart != nil && !ran && !failed
		hooking = hooking || due || last.State == pod.Running && s.Probed[last.ID].Starting
	}
}

// container plans for one container according to its restart policy.
func (s containers) container(c *v1.Container) {
	last, lost, found := s.mine.Last(s.Pod.UID, c.Name)
	switch {
	case !found:
		s.start(c, StartContainer{Container: c.Name, Why: "first start"})
	case lost && last.State != pod.Exited:
		// How the instance ended is unknown. Its attempt number and its back-off step are not used again.
		a := StartContainer{Container: c.Name, Attempt: last.Attempt + 1, Backoff: last.Backoff + 1, Why: "container was removed"}
		if last.Boot != s.Boot {
			a.Backoff = 0
		}
		s.start(c, a)
	case last.State == pod.Created:
		// The start was interrupted before the process ran, so the attempt number was not used.
		s.start(c, StartContainer{Container: c.Name, Attempt: last.Attempt, Backoff: last.Backoff, Why: "start was interrupted"})
	case last.State == pod.Running:
		s.running(c, last)
	case last.State == pod.Exited && s.isFollowed(c, last):
		s.restart(c, last)
	}
}

// running plans for a running instance: it is terminated if a probe or hook has failed or if it cannot stay otherwise.
func (s containers) running(c *v1.Container, last pod.Container) {
	terminator := newTerminator(s.plan, s.Input)
	failed := s.Probed[last.ID].Failed
	switch {
	case failed != nil:
		if failed.Resize {
			s.plan.resizing()
		}
		if failed.Requested && last.Sidecar > 0 && s.requestedLives(false) {
			return // it is terminated after the containers that may need it
		}
		g := terminator.grace(last)
		g.Probe = failed.Grace
		terminator.instance(last, g, failed.Why)
	case s.Signalled[last.ID] != (pod.Signals{}):
		// The instance was asked to exit while it was not wanted: its state is unknown, so it is replaced.
		terminator.container(last, "termination was already requested")
	case last.SandboxID != s.sandbox.ID:
		terminator.container(last, "sandbox replaced")
	default:
		s.resize(c, last)
	}
}

// restart plans the next instance of an exited one, after its crash back-off.
func (s containers) restart(c *v1.Container, last pod.Container) {
	a := StartContainer{Container: c.Name, Attempt: last.Attempt + 1, Backoff: last.Backoff + 1}
	a.Why = fmt.Sprintf("exit code %d", last.ExitCode)
	delay := backoff(last.Backoff, s.MaxBackoff)
	failed, ran := s.Probed[last.ID].Failed, last.FinishedAt.Sub(last.StartedAt)
	probe := failed != nil && failed.Why != pod.ReasonPostStart
	switch {
	case failed != nil && failed.Requested:
		a.Backoff, delay, a.Why = 0, 0, failed.Why
		if last.Sidecar == 0 && s.requestedLives(true) {
			s.plan.wait(NotYet(s.Pod), c) // for the sidecars that are restarted with it
			return
		}
	case failed != nil && failed.Resize:
		s.plan.resizing()
		a.Backoff, delay, a.Why = last.Backoff, 0, failed.Why
	case s.stale(last) && !restartsAll(c, last):
		a.Backoff, delay, a.Why = last.Backoff, 0, "all containers restart"
	case last.Boot != s.Boot:
		a.Backoff, delay, a.Why = 0, 0, "machine was restarted"
	case last.Resources != pod.ResourcesOf(s.Pod, c):
		// They may be what mends it, as after OOMKilled. The kubelet counts anew too (kuberuntime, GetBackoffKey).
		a.Backoff, delay, a.Why = 1, 0, "resources changed"
	// The kubelet ends and restarts at once what a probe ends, and counts from the exit before, if there was one.
	case probe && last.Attempt == 0:
		a.Backoff = 0
	case ran >= backoffReset:
		a.Backoff, delay = 1, 0
	case probe && ran >= delay:
		delay = 0
	}
	// A clock that was set back does not extend the wait.
	if left := min(delay, delay-s.Now.Sub(last.FinishedAt)); left > 0 {
		s.plan.retryAt(s.Now.Add(left), s.Now)
		s.plan.wait(Waiting{ReasonCrashLoopBackOff, fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
			delay, c.Name, s.Pod.Name, s.Pod.Namespace, s.Pod.UID)}, c)
		return
	}
	s.start(c, a)
}

// start plans the start of an instance, or the step that must come before it: a wait for a retry, or the image.
func (s containers) start(c *v1.Container, a StartContainer) {
	s.plan.wait(NotYet(s.Pod), c)
	a.Mount = len(s.Pod.Spec.Volumes) > 0 && !s.ranIn(s.sandbox)
	key := c.Name
	if _, failed := s.Failures[FailureMount]; failed && a.Mount {
		key = FailureMount
	}
	f, failed := s.Failures[key]
	if failed {
		s.plan.wait(waitingAfter(f, c, NotYet(s.Pod)), c)
		if f.Reason == pod.ReasonFailedMount {
			s.plan.Unmounted = &Waiting{Reason: f.Reason, Message: f.Message}
		}
		if left := s.untilRetry(key); left > 0 {
			s.plan.retryAt(s.Now.Add(left), s.Now)
			return
		}
	}
	switch image := s.Images[c.Name]; {
	case image.Pulling:
		if image.Progress != "" || !failed {
			s.plan.wait(Waiting{
				NotYet(s.Pod).Reason,
				strings.TrimSuffix(fmt.Sprintf("pulling image %q: %s", c.Image, image.Progress), ": "),
			}, c)
		}
	case !image.Ready:
		s.plan.add(EnsureImage{Container: c.Name})
	default:
		a.RestartGeneration = s.restartGeneration
		s.plan.add(a)
	}
}

// NotYet returns the waiting state of a container of p that only waits for earlier steps of the pod's start.
func NotYet(p *v1.Pod) Waiting {
	if len(p.Spec.InitContainers) > 0 {
		return Waiting{Reason: "PodInitializing"}
	}
	return Waiting{Reason: "ContainerCreating"}
}
