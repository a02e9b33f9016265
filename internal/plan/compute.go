package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// AnnotationRunPolicy is the annotation that, with the value RunOnceEver, prevents a completed pod
// from running again after a reboot.
const (
	AnnotationRunPolicy = "podrun.io/run-policy"
	RunOnceEver         = "once-ever"
)

// rekill is how long to wait for the exit of a killed instance before it is killed again.
const rekill = 5 * time.Second

// Compute returns the plan for in. The same input always gives the same plan.
func Compute(in Input) Plan {
	p := planner{in: reading{in, restartGenerationOf(in.Pod, in.Observed)}, plan: Plan{Waiting: map[string]Waiting{}}}
	switch {
	case in.Pod == nil:
		if p.end(in.Observed, "not wanted") {
			p.plan.Gone = in.Observed.Empty()
		}
	case p.in.again():
		p.plan.Again = true
		if in.Resized != nil {
			p.plan.do(Allocate{Anew: true})
		}
		p.end(in.Observed, "pod starts again")
		p.waitAll(p.in.notYet())
	default:
		p.keep()
	}
	return p.plan
}

// Final reports whether the wanted revision has finished and is not started again, so that its
// result is final. Some of its containers may still be terminating. Input.Pod must not be nil.
func Final(in Input) bool {
	r := reading{Input: in}
	mine, _ := in.Observed.Split(in.Pod.UID)
	_, over := r.over(mine)
	return over && !r.again()
}

// reading answers questions about an input. It plans nothing.
type reading struct {
	Input
	// generation is the restart generation that the wanted revision is in.
	generation int
}

// planner holds the input and the growing plan of one call of Compute.
type planner struct {
	in   reading
	plan Plan
}

func (p *Plan) do(a Action) { p.Actions = append(p.Actions, a) }

// wakeIn makes the plan's Wake at most d.
func (p *Plan) wakeIn(d time.Duration) {
	if d = max(d, time.Millisecond); p.Wake == 0 || d < p.Wake {
		p.Wake = d
	}
}

// retryIn records that something that failed is retried after left.
func (p *planner) retryIn(left time.Duration) {
	p.plan.wakeIn(left)
	if at := p.in.Now.Add(left); p.plan.Next.IsZero() || at.Before(p.plan.Next) {
		p.plan.Next = at
	}
}

func (p *planner) waitAll(w Waiting) {
	for _, c := range pod.AllContainers(p.in.Pod) {
		p.plan.Waiting[c.Name] = w
	}
}

// notYet returns the waiting state of a container that only waits for earlier steps of the pod's
// start.
func (in reading) notYet() Waiting { return NotYet(in.Pod) }

// NotYet returns the waiting state of a container of p that only waits for earlier steps of the
// pod's start.
func NotYet(p *v1.Pod) Waiting {
	if len(p.Spec.InitContainers) > 0 {
		return Waiting{Reason: "PodInitializing"}
	}
	return Waiting{Reason: "ContainerCreating"}
}

// end stops all of o and, once nothing of it lives, removes it. Records of containers that have run
// are removed last: as long as one is left, podrun knows that there is something to remove. It
// reports whether nothing lives.
func (p *planner) end(o pod.Observed, why string) bool {
	if p.stopAll(o, why) {
		return false
	}
	p.plan.reap(o)
	for _, c := range o.Containers {
		if c.State == pod.Created {
			p.plan.do(RemoveContainer{ID: c.ID, Container: c.Name, Why: "never started"})
		}
	}
	for _, s := range o.Sandboxes {
		p.plan.do(RemoveSandbox{ID: s.ID, Why: why})
	}
	for _, uid := range o.Data {
		p.plan.do(RemoveData{UID: uid})
	}
	for _, c := range o.Containers {
		if c.State != pod.Created {
			p.plan.do(RemoveContainer{ID: c.ID, Container: c.Name, Why: why})
		}
	}
	return true
}

// keep plans for a pod that is wanted. Older revisions are stopped completely before the wanted one
// runs; their remains are removed last, because nothing waits for that.
func (p *planner) keep() {
	if p.reapLost() {
		return
	}
	mine, old := p.in.Observed.Split(p.in.Pod.UID)
	if p.stopAll(old, "manifest changed") {
		p.waitAll(p.in.notYet())
		return
	}
	if p.run(mine); !p.plan.starting() {
		p.end(old, "manifest changed")
	}
}

// run plans for the wanted revision.
func (p *planner) run(o pod.Observed) {
	if p.in.late(o) {
		p.plan.Failure = &Waiting{
			Reason:  "DeadlineExceeded",
			Message: "Pod was active on the node longer than the specified deadline",
		}
	}
	if p.in.Evicted != "" {
		p.plan.Failure = &Waiting{Reason: "Evicted", Message: p.in.Evicted}
	}
	if why, over := p.in.over(o); over {
		if p.stopAll(o, why) {
			return
		}
		p.plan.Completed = true
		p.plan.reap(o)
		for _, s := range o.Sandboxes {
			p.plan.do(RemoveSandbox{ID: s.ID, Why: "pod completed"})
		}
		return
	}
	if p.in.Halted {
		if !p.stopAll(o, "node is shutting down") {
			p.plan.reap(o)
		}
		p.waitAll(Waiting{Reason: "NodeShutdown", Message: "Pod was terminated in response to imminent node shutdown."})
		return
	}
	if deadline, has := p.in.deadline(); has {
		p.plan.wakeIn(deadline.Sub(p.in.Now))
	}
	if p.allocate() {
		return
	}
	sandbox, ready := p.sandbox(o)
	if !ready {
		return
	}
	if p.endGeneration(o) {
		p.plan.Restarting = true
		p.waitAll(p.in.notYet())
		return
	}
	if p.initialize(o, sandbox) {
		p.containers(o, sandbox)
	}
	if !p.plan.starting() {
		p.clear(o)
		p.removeLost(slices.DeleteFunc(slices.Clone(o.Sandboxes), func(s pod.Sandbox) bool {
			return s.ID == sandbox.ID
		}))
	}
}

// removeLost removes sandboxes in which nothing runs. A removal that fails, for example because a
// network plugin fails, is retried later and delays nothing else.
func (p *planner) removeLost(all []pod.Sandbox) {
	for _, s := range all {
		if f, failed := p.in.Failures[FailureSandbox+s.ID]; failed {
			if left := retryDelay(f) - p.in.Now.Sub(f.At); left > 0 {
				p.plan.wakeIn(left)
				continue
			}
		}
		p.plan.do(RemoveSandbox{ID: s.ID, Why: "not ready", Lost: true})
	}
}

// starting reports whether the plan contains a start, or a step right before one. Nothing is
// cleaned up until then.
func (p *Plan) starting() bool {
	return slices.ContainsFunc(p.Actions, func(a Action) bool {
		switch a.(type) {
		case Allocate, CreateSandbox, EnsureImage, StartContainer:
			return true
		}
		return false
	})
}

// sandbox returns the sandbox to run in and whether it is ready. If there is none, it plans one,
// after everything that runs in a lost sandbox has exited.
func (p *planner) sandbox(o pod.Observed) (pod.Sandbox, bool) {
	attempt := 0
	for i, s := range o.Sandboxes {
		if i == 0 && s.Ready {
			return s, true
		}
		attempt = max(attempt, s.Attempt+1)
	}
	p.waitAll(p.in.notYet())
	if p.stopAll(o, "sandbox lost") {
		return pod.Sandbox{}, false
	}
	p.removeLost(o.Sandboxes)
	if why := p.in.admit(); why != nil {
		p.plan.Failure = why
		return pod.Sandbox{}, false
	}
	if f, failed := p.in.Failures[""]; failed {
		p.waitAll(waitingForSandbox(f, p.in.notYet()))
		if left := retryDelay(f) - p.in.Now.Sub(f.At); left > 0 {
			p.retryIn(left)
			return pod.Sandbox{}, false
		}
	}
	// Images come first, so that pulls run while the sandbox is created.
	for _, c := range pod.AllContainers(p.in.Pod) {
		p.ensureEarly(o, c)
	}
	p.plan.do(CreateSandbox{Attempt: attempt})
	return pod.Sandbox{}, false
}

// ensureEarly plans for the image of a container that is started as soon as there is a sandbox.
func (p *planner) ensureEarly(o pod.Observed, c *v1.Container) {
	last, found := o.Newest(p.in.Pod.UID, c.Name)
	due := !found || last.State == pod.Exited && (p.in.isInit(c.Name) || p.in.restarts(c, last))
	_, failed := p.in.Failures[c.Name]
	if image := p.in.Images[c.Name]; due && !failed && !image.Ready && !image.Pulling {
		p.plan.do(EnsureImage{Container: c.Name})
	}
}

// containers plans for all but the init containers. A container that has not run yet waits while
// the postStart hook of one before it is due or running, as in Kubernetes.
func (p *planner) containers(o pod.Observed, sandbox pod.Sandbox) {
	hooking := false
	for i := range p.in.Pod.Spec.Containers {
		c := &p.in.Pod.Spec.Containers[i]
		last, _, found := o.Last(p.in.Pod.UID, c.Name)
		ran := found && last.State != pod.Created && !p.in.stale(last)
		if hooking && !ran {
			p.plan.Waiting[c.Name] = p.in.notYet()
			continue
		}
		p.container(o, sandbox, c)
		_, failed := p.in.Failures[c.Name]
		due := c.Lifecycle != nil && c.Lifecycle.PostStart != nil && !ran && !failed
		hooking = hooking || due || last.State == pod.Running && p.in.Probed[last.ID].Starting
	}
}

// container plans for one container according to its restart policy.
func (p *planner) container(o pod.Observed, sandbox pod.Sandbox, c *v1.Container) {
	last, lost, found := o.Last(p.in.Pod.UID, c.Name)
	bad := p.in.Probed[last.ID].Failed
	last.Grace = p.in.graceOf(last, bad)
	switch {
	case !found:
		p.start(c, StartContainer{Container: c.Name, Why: "first start"})
	case lost && last.State != pod.Exited:
		// How the instance ended is unknown. Its attempt number and its back-off step are not used
		// again.
		s := StartContainer{
			Container: c.Name,
			Attempt:   last.Attempt + 1,
			Backoff:   last.Backoff + 1,
			Why:       "container was removed",
		}
		if last.Boot != p.in.Boot {
			s.Backoff = 0
		}
		p.start(c, s)
	case last.State == pod.Created:
		// The start was interrupted before the process ran, so the attempt number was not used.
		p.start(c, StartContainer{
			Container: c.Name,
			Attempt:   last.Attempt,
			Backoff:   last.Backoff,
			Why:       "start was interrupted",
		})
	case last.State == pod.Running && bad != nil:
		if bad.Resize {
			p.plan.resizing()
		}
		p.stop(last, time.Time{}, bad.Why)
	case last.State == pod.Running && p.in.Signalled[last.ID] != (pod.Signals{}):
		// The instance was asked to exit while it was not wanted: its state is unknown, so it is
		// replaced.
		p.stop(last, time.Time{}, "termination was already requested")
	case last.State == pod.Running && last.SandboxID != sandbox.ID:
		p.stop(last, time.Time{}, "sandbox replaced")
	case last.State == pod.Running && !lost:
		p.resize(c, last)
	case last.State == pod.Exited && p.in.restarts(c, last):
		p.restart(c, last)
	}
}

func (p *planner) restart(c *v1.Container, last pod.Container) {
	s := StartContainer{
		Container: c.Name,
		Attempt:   last.Attempt + 1,
		Backoff:   last.Backoff + 1,
		Why:       fmt.Sprintf("exit code %d", last.ExitCode),
	}
	delay := backoff(last.Backoff, p.in.MaxBackoff)
	failed := p.in.Probed[last.ID].Failed
	switch {
	case failed != nil && failed.Resize:
		p.plan.resizing()
		s.Backoff, delay, s.Why = last.Backoff, 0, failed.Why
	case p.in.stale(last) && !restartsAll(c, last):
		s.Backoff, delay, s.Why = last.Backoff, 0, "all containers restart"
	case last.Boot != p.in.Boot:
		s.Backoff, delay, s.Why = 0, 0, "machine was restarted"
	case last.FinishedAt.Sub(last.StartedAt) >= goodRun:
		s.Backoff, delay = 1, 0
	}
	if left := delay - p.in.Now.Sub(last.FinishedAt); left > 0 && delay > 0 {
		// A clock that was set back must not extend the wait.
		left = min(left, delay)
		p.retryIn(left)
		p.plan.Waiting[c.Name] = Waiting{
			Reason: "CrashLoopBackOff",
			Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
				delay, c.Name, p.in.Pod.Name, p.in.Pod.Namespace, p.in.Pod.UID),
		}
		return
	}
	p.start(c, s)
}

// start plans the start of an instance, or the step that must come before it: a wait for a retry,
// or the image.
func (p *planner) start(c *v1.Container, s StartContainer) {
	p.plan.Waiting[c.Name] = p.in.notYet()
	if f, failed := p.in.Failures[c.Name]; failed {
		p.plan.Waiting[c.Name] = waitingAfter(f, c)
		if left := retryDelay(f) - p.in.Now.Sub(f.At); left > 0 {
			p.retryIn(left)
			return
		}
	}
	switch image := p.in.Images[c.Name]; {
	case image.Pulling:
		if _, failed := p.in.Failures[c.Name]; image.Progress != "" || !failed {
			p.plan.Waiting[c.Name] = Waiting{
				p.in.notYet().Reason,
				strings.TrimSuffix(fmt.Sprintf("pulling image %q: %s", c.Image, image.Progress), ": "),
			}
		}
	case !image.Ready:
		p.plan.do(EnsureImage{Container: c.Name})
	default:
		s.RestartGeneration = p.in.generation
		p.plan.do(s)
	}
}

// clear reaps exited instances and removes all but the newest exited instance of each container,
// whose state the pod status needs.
func (p *planner) clear(o pod.Observed) {
	p.plan.reap(o)
	for _, c := range o.Containers {
		if c.State != pod.Exited {
			continue
		}
		for _, later := range o.Containers {
			if later.Name == c.Name && later.Attempt > c.Attempt && later.State == pod.Exited {
				p.plan.do(RemoveContainer{ID: c.ID, Container: c.Name, Why: "superseded"})
				break
			}
		}
	}
}

// reap plans to reap the exited instances of o.
func (p *Plan) reap(o pod.Observed) {
	for _, c := range o.Containers {
		if c.State == pod.Exited && !c.Reaped {
			p.do(Reap{ID: c.ID, Container: c.Name})
		}
	}
}

// reapLost reaps instances of this boot whose exit nobody observed, before anything is started in
// their place: their processes may still run, which the executor of the Reap finds out. It reports
// whether there are any. No process survives a reboot, so instances of earlier boots are left out.
func (p *planner) reapLost() (found bool) {
	for _, c := range p.in.Observed.Containers {
		if c.State == pod.Exited && !c.Reaped && c.Reason == pod.ReasonLost && c.Boot == p.in.Boot {
			p.plan.do(Reap{ID: c.ID, Container: c.Name})
			found = true
		}
	}
	return found
}

// again reports whether what is left of the wanted revision belongs to an earlier run: all of it is
// removed and the pod starts from the beginning. A job that was interrupted by a reboot runs again
// as a whole.
func (in reading) again() bool {
	mine, _ := in.Observed.Split(in.Pod.UID)
	if mine.Empty() {
		return false
	}
	_, over := in.ended(mine)
	if !slices.ContainsFunc(mine.Containers, lives) {
		over = over || in.late(mine) // a late instance that still lives is terminated first
	}
	if in.Replaced || in.Earlier && (len(mine.Containers) == 0 || over) {
		return true
	}
	onceEver := in.Pod.Annotations[AnnotationRunPolicy] == RunOnceEver
	if in.Pod.Spec.RestartPolicy == v1.RestartPolicyAlways && !over || onceEver {
		return false
	}
	rebooted := false
	for _, c := range mine.Containers {
		if c.State == pod.Running || c.State == pod.Unknown {
			return false
		}
		rebooted = rebooted || c.Boot != in.Boot
	}
	for _, c := range pod.AllContainers(in.Pod) {
		last, lost, _ := mine.Last(in.Pod.UID, c.Name)
		rebooted = rebooted || lost && last.Boot != in.Boot
	}
	return rebooted
}
