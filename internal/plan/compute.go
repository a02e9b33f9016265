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
	if in.MaxGrace != nil {
		in.Observed.Containers = limited(in.Observed.Containers, *in.MaxGrace)
	}
	j := judge{
		in:                in,
		plan:              Plan{Waiting: map[string]Waiting{}},
		restartGeneration: restartGenerationOf(in.Pod, in.Observed),
	}
	switch {
	case in.Pod == nil:
		if j.end(in.Observed, "not wanted") {
			j.plan.Gone = in.Observed.Empty()
		}
	case j.again():
		j.plan.Again = true
		if j.in.Resized != nil {
			j.do(Allocate{Anew: true})
		}
		j.end(in.Observed, "pod starts again")
		j.waitAll(j.notYet())
	default:
		j.keep()
	}
	return j.plan
}

// Final reports whether the wanted revision has finished and is not started again, so that its
// result is final. Some of its containers may still be terminating. Input.Pod must not be nil.
func Final(in Input) bool {
	j := judge{in: in}
	mine, _ := in.Observed.Split(in.Pod.UID)
	_, over := j.over(mine)
	return over && !j.again()
}

// judge holds the input and the growing plan of one call of Compute.
type judge struct {
	in                Input
	plan              Plan
	restartGeneration int
}

func (j *judge) do(a Action) { j.plan.Actions = append(j.plan.Actions, a) }

// wakeIn makes the plan's Wake at most d.
func (j *judge) wakeIn(d time.Duration) {
	if d = max(d, time.Millisecond); j.plan.Wake == 0 || d < j.plan.Wake {
		j.plan.Wake = d
	}
}

// retryIn records that something that failed is retried after left.
func (j *judge) retryIn(left time.Duration) {
	j.wakeIn(left)
	if at := j.in.Now.Add(left); j.plan.Next.IsZero() || at.Before(j.plan.Next) {
		j.plan.Next = at
	}
}

func (j *judge) waitAll(w Waiting) {
	for _, c := range pod.AllContainers(j.in.Pod) {
		j.plan.Waiting[c.Name] = w
	}
}

// notYet returns the waiting state of a container that only waits for earlier steps of the pod's
// start.
func (j *judge) notYet() Waiting { return NotYet(j.in.Pod) }

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
func (j *judge) end(o pod.Observed, why string) bool {
	if j.stopAll(o, why) {
		return false
	}
	j.reapAll(o)
	for _, c := range o.Containers {
		if c.State == pod.Created {
			j.do(RemoveContainer{ID: c.ID, Container: c.Name, Why: "never started"})
		}
	}
	for _, s := range o.Sandboxes {
		j.do(RemoveSandbox{ID: s.ID, Why: why})
	}
	for _, uid := range o.Data {
		j.do(RemoveData{UID: uid})
	}
	for _, c := range o.Containers {
		if c.State != pod.Created {
			j.do(RemoveContainer{ID: c.ID, Container: c.Name, Why: why})
		}
	}
	return true
}

// keep plans for a pod that is wanted. Older revisions are stopped completely before the wanted one
// runs; their remains are removed last, because nothing waits for that.
func (j *judge) keep() {
	if j.reapLost() {
		return
	}
	mine, old := j.in.Observed.Split(j.in.Pod.UID)
	if j.stopAll(old, "manifest changed") {
		j.waitAll(j.notYet())
		return
	}
	if j.run(mine); !j.starting() {
		j.end(old, "manifest changed")
	}
}

// run plans for the wanted revision.
func (j *judge) run(o pod.Observed) {
	if j.late(o) {
		j.plan.Failure = &Waiting{
			Reason:  "DeadlineExceeded",
			Message: "Pod was active on the node longer than the specified deadline",
		}
	}
	if j.in.Evicted != "" {
		j.plan.Failure = &Waiting{Reason: "Evicted", Message: j.in.Evicted}
	}
	if why, over := j.over(o); over {
		if j.in.Evicted != "" {
			o.Containers = limited(o.Containers, evictionGrace)
		}
		if j.stopAll(o, why) {
			return
		}
		j.plan.Completed = true
		j.reapAll(o)
		for _, s := range o.Sandboxes {
			j.do(RemoveSandbox{ID: s.ID, Why: "pod completed"})
		}
		return
	}
	if j.in.Halted {
		if !j.stopAll(o, "node is shutting down") {
			j.reapAll(o)
		}
		j.waitAll(Waiting{Reason: "NodeShutdown", Message: "Pod was terminated in response to imminent node shutdown."})
		return
	}
	if deadline, has := j.deadline(); has {
		j.wakeIn(deadline.Sub(j.in.Now))
	}
	if j.allocate() {
		return
	}
	sandbox, ready := j.sandbox(o)
	if !ready {
		return
	}
	if j.endGeneration(o) {
		j.plan.Restarting = true
		j.waitAll(j.notYet())
		return
	}
	if j.initialize(o, sandbox) {
		j.containers(o, sandbox)
	}
	if !j.starting() {
		j.clear(o)
		j.removeLost(slices.DeleteFunc(slices.Clone(o.Sandboxes), func(s pod.Sandbox) bool {
			return s.ID == sandbox.ID
		}))
	}
}

// removeLost removes sandboxes in which nothing runs. A removal that fails, for example because a
// network plugin fails, is retried later and delays nothing else.
func (j *judge) removeLost(all []pod.Sandbox) {
	for _, s := range all {
		if f, failed := j.in.Failures[FailureSandbox+s.ID]; failed {
			if left := retryDelay(f) - j.in.Now.Sub(f.At); left > 0 {
				j.wakeIn(left)
				continue
			}
		}
		j.do(RemoveSandbox{ID: s.ID, Why: "not ready", Lost: true})
	}
}

// starting reports whether the plan contains a start, or a step right before one. Nothing is
// cleaned up until then.
func (j *judge) starting() bool {
	return slices.ContainsFunc(j.plan.Actions, func(a Action) bool {
		switch a.(type) {
		case Allocate, CreateSandbox, EnsureImage, StartContainer:
			return true
		}
		return false
	})
}

// sandbox returns the sandbox to run in and whether it is ready. If there is none, it plans one,
// after everything that runs in a lost sandbox has exited.
func (j *judge) sandbox(o pod.Observed) (pod.Sandbox, bool) {
	attempt := 0
	for i, s := range o.Sandboxes {
		if i == 0 && s.Ready {
			return s, true
		}
		attempt = max(attempt, s.Attempt+1)
	}
	j.waitAll(j.notYet())
	if j.stopAll(o, "sandbox lost") {
		return pod.Sandbox{}, false
	}
	j.removeLost(o.Sandboxes)
	if why := j.admit(); why != nil {
		j.plan.Failure = why
		return pod.Sandbox{}, false
	}
	if f, failed := j.in.Failures[""]; failed {
		j.waitAll(waitingForSandbox(f, j.notYet()))
		if left := retryDelay(f) - j.in.Now.Sub(f.At); left > 0 {
			j.retryIn(left)
			return pod.Sandbox{}, false
		}
	}
	// Images come first, so that pulls run while the sandbox is created.
	for _, c := range pod.AllContainers(j.in.Pod) {
		j.ensureEarly(o, c)
	}
	j.do(CreateSandbox{Attempt: attempt})
	return pod.Sandbox{}, false
}

// ensureEarly plans for the image of a container that is started as soon as there is a sandbox.
func (j *judge) ensureEarly(o pod.Observed, c *v1.Container) {
	last, found := o.Newest(j.in.Pod.UID, c.Name)
	due := !found || last.State == pod.Exited && (j.isInit(c.Name) || j.restarts(c, last))
	_, failed := j.in.Failures[c.Name]
	if image := j.in.Images[c.Name]; due && !failed && !image.Ready && !image.Pulling {
		j.do(EnsureImage{Container: c.Name})
	}
}

// containers plans for all but the init containers. A container that has not run yet waits while
// the postStart hook of one before it is due or running, as in Kubernetes.
func (j *judge) containers(o pod.Observed, sandbox pod.Sandbox) {
	hooking := false
	for i := range j.in.Pod.Spec.Containers {
		c := &j.in.Pod.Spec.Containers[i]
		last, _, found := o.Last(j.in.Pod.UID, c.Name)
		ran := found && last.State != pod.Created && !j.stale(last)
		if hooking && !ran {
			j.plan.Waiting[c.Name] = j.notYet()
			continue
		}
		j.container(o, sandbox, c)
		_, failed := j.in.Failures[c.Name]
		due := c.Lifecycle != nil && c.Lifecycle.PostStart != nil && !ran && !failed
		hooking = hooking || due || last.State == pod.Running && j.in.Probed[last.ID].Starting
	}
}

// container plans for one container according to its restart policy.
func (j *judge) container(o pod.Observed, sandbox pod.Sandbox, c *v1.Container) {
	last, lost, found := o.Last(j.in.Pod.UID, c.Name)
	bad := j.in.Probed[last.ID].Failed
	switch {
	case !found:
		j.start(c, StartContainer{Container: c.Name, Why: "first start"})
	case lost && last.State != pod.Exited:
		// How the instance ended is unknown. Its attempt number and its back-off step are not used
		// again.
		s := StartContainer{
			Container: c.Name,
			Attempt:   last.Attempt + 1,
			Backoff:   last.Backoff + 1,
			Why:       "container was removed",
		}
		if last.Boot != j.in.Boot {
			s.Backoff = 0
		}
		j.start(c, s)
	case last.State == pod.Created:
		// The start was interrupted before the process ran, so the attempt number was not used.
		j.start(c, StartContainer{
			Container: c.Name,
			Attempt:   last.Attempt,
			Backoff:   last.Backoff,
			Why:       "start was interrupted",
		})
	case last.State == pod.Running && bad != nil:
		if bad.Resize {
			j.resizing()
		}
		if bad.Grace != nil {
			last.Grace = *bad.Grace
			if most := j.in.MaxGrace; most != nil {
				last.Grace = min(last.Grace, *most)
			}
		}
		j.stop(last, time.Time{}, bad.Why)
	case last.State == pod.Running && j.in.Signalled[last.ID] != (pod.Signals{}):
		// The instance was asked to exit while it was not wanted: its state is unknown, so it is
		// replaced.
		j.stop(last, time.Time{}, "termination was already requested")
	case last.State == pod.Running && last.SandboxID != sandbox.ID:
		j.stop(last, time.Time{}, "sandbox replaced")
	case last.State == pod.Running && !lost:
		j.resize(c, last)
	case last.State == pod.Exited && j.restarts(c, last):
		j.restart(c, last)
	}
}

func (j *judge) restart(c *v1.Container, last pod.Container) {
	s := StartContainer{
		Container: c.Name,
		Attempt:   last.Attempt + 1,
		Backoff:   last.Backoff + 1,
		Why:       fmt.Sprintf("exit code %d", last.ExitCode),
	}
	delay := backoff(last.Backoff, j.in.MaxBackoff)
	failed := j.in.Probed[last.ID].Failed
	switch {
	case failed != nil && failed.Resize:
		j.resizing()
		s.Backoff, delay, s.Why = last.Backoff, 0, failed.Why
	case j.stale(last) && !restartsAll(c, last):
		s.Backoff, delay, s.Why = last.Backoff, 0, "all containers restart"
	case last.Boot != j.in.Boot:
		s.Backoff, delay, s.Why = 0, 0, "machine was restarted"
	case last.FinishedAt.Sub(last.StartedAt) >= goodRun:
		s.Backoff, delay = 1, 0
	}
	if left := delay - j.in.Now.Sub(last.FinishedAt); left > 0 && delay > 0 {
		// A clock that was set back must not extend the wait.
		left = min(left, delay)
		j.retryIn(left)
		j.plan.Waiting[c.Name] = Waiting{
			Reason: "CrashLoopBackOff",
			Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
				delay, c.Name, j.in.Pod.Name, j.in.Pod.Namespace, j.in.Pod.UID),
		}
		return
	}
	j.start(c, s)
}

// start plans the start of an instance, or the step that must come before it: a wait for a retry,
// or the image.
func (j *judge) start(c *v1.Container, s StartContainer) {
	j.plan.Waiting[c.Name] = j.notYet()
	if f, failed := j.in.Failures[c.Name]; failed {
		j.plan.Waiting[c.Name] = waitingAfter(f, c)
		if left := retryDelay(f) - j.in.Now.Sub(f.At); left > 0 {
			j.retryIn(left)
			return
		}
	}
	switch image := j.in.Images[c.Name]; {
	case image.Pulling:
		if _, failed := j.in.Failures[c.Name]; image.Progress != "" || !failed {
			j.plan.Waiting[c.Name] = Waiting{
				j.notYet().Reason,
				strings.TrimSuffix(fmt.Sprintf("pulling image %q: %s", c.Image, image.Progress), ": "),
			}
		}
	case !image.Ready:
		j.do(EnsureImage{Container: c.Name})
	default:
		s.RestartGeneration = j.restartGeneration
		j.do(s)
	}
}

// clear reaps exited instances and removes all but the newest exited instance of each container,
// whose state the pod status needs.
func (j *judge) clear(o pod.Observed) {
	j.reapAll(o)
	for _, c := range o.Containers {
		if c.State != pod.Exited {
			continue
		}
		for _, later := range o.Containers {
			if later.Name == c.Name && later.Attempt > c.Attempt && later.State == pod.Exited {
				j.do(RemoveContainer{ID: c.ID, Container: c.Name, Why: "superseded"})
				break
			}
		}
	}
}

func (j *judge) reapAll(o pod.Observed) {
	for _, c := range o.Containers {
		if c.State == pod.Exited && !c.Reaped {
			j.do(Reap{ID: c.ID, Container: c.Name})
		}
	}
}

// reapLost reaps instances of this boot whose exit nobody observed, before anything is started in
// their place: their processes may still run, which the executor of the Reap finds out. It reports
// whether there are any. No process survives a reboot, so instances of earlier boots are left out.
func (j *judge) reapLost() (found bool) {
	for _, c := range j.in.Observed.Containers {
		if c.State == pod.Exited && !c.Reaped && c.Reason == pod.ReasonLost && c.Boot == j.in.Boot {
			j.do(Reap{ID: c.ID, Container: c.Name})
			found = true
		}
	}
	return found
}

// again reports whether what is left of the wanted revision belongs to an earlier run: all of it is
// removed and the pod starts from the beginning. A job that was interrupted by a reboot runs again
// as a whole.
func (j *judge) again() bool {
	mine, _ := j.in.Observed.Split(j.in.Pod.UID)
	if mine.Empty() {
		return false
	}
	_, over := j.ended(mine)
	if !slices.ContainsFunc(mine.Containers, lives) {
		over = over || j.late(mine) // a late instance that still lives is terminated first
	}
	if j.in.Replaced || j.in.Earlier && (len(mine.Containers) == 0 || over) {
		return true
	}
	onceEver := j.in.Pod.Annotations[AnnotationRunPolicy] == RunOnceEver
	if j.in.Pod.Spec.RestartPolicy == v1.RestartPolicyAlways && !over || onceEver {
		return false
	}
	rebooted := false
	for _, c := range mine.Containers {
		if c.State == pod.Running || c.State == pod.Unknown {
			return false
		}
		rebooted = rebooted || c.Boot != j.in.Boot
	}
	for _, c := range pod.AllContainers(j.in.Pod) {
		last, lost, _ := mine.Last(j.in.Pod.UID, c.Name)
		rebooted = rebooted || lost && last.Boot != j.in.Boot
	}
	return rebooted
}
