package plan

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// AnnotationRunPolicy is the annotation whose value RunOnceEver keeps a completed pod from running again after a boot.
const (
	AnnotationRunPolicy = "podrun.io/run-policy"
	RunOnceEver         = "once-ever"
)

// revision is the wanted revision of a pod and all that is known of it. Its methods say how far it is and plan nothing.
type revision struct {
	Input                          // Pod is not nil
	mine              pod.Observed // the part of Observed that belongs to the revision
	restartGeneration int          // that the revision is in
	job, onceEver     bool         // it is a pod of a Job, or runs once ever
	forGood           bool         // one of these: a shutdown that interrupts it makes it fail
	cutOff            bool         // a shutdown has interrupted it, and it does not wait until that is over
	// goesOn reports that the revision goes on after a reboot, a lost sandbox, or a shutdown that is cancelled,
	// with all of its containers: what they do is not for good.
	goesOn bool
}

func newRevision(in Input) revision {
	mine, _ := in.Observed.Split(in.Pod.UID)
	r := revision{Input: in, mine: mine, restartGeneration: restartGenerationOf(in.Pod, mine)}
	r.job = strings.HasPrefix(in.Pod.Annotations[pod.AnnotationWorkload], "Job/")
	r.onceEver = in.Pod.Annotations[AnnotationRunPolicy] == RunOnceEver
	r.forGood = r.job || r.onceEver
	r.cutOff = in.Interrupted && (r.forGood || in.Limits.Shutdown == nil)
	r.goesOn = !r.forGood && in.Pod.Spec.RestartPolicy != v1.RestartPolicyNever && in.Refused == ""
	return r
}

// over reports whether the revision has finished, and why: what runs of it is terminated and nothing is started again.
func (r revision) over() (why string, over bool) {
	switch {
	case r.cutOff:
		return "node is shutting down", true
	case r.Evicted != "":
		return "evicted", true
	}
	if why, ended := r.ended(); ended {
		return why, true
	}
	return "deadline exceeded", r.late()
}

// ended reports whether all but the sidecars of the revision have exited and nothing of it will be started again.
func (r revision) ended() (why string, ended bool) {
	if r.Interrupted && !r.forGood {
		return "", false // it begins anew, whatever its containers have returned
	}
	if r.initFailed() {
		return "initialization failed", true
	}
	for i := range r.Pod.Spec.Containers {
		c := &r.Pod.Spec.Containers[i]
		last, _, found := r.mine.Last(r.Pod.UID, c.Name)
		if !found || last.State != pod.Exited || r.restarts(c, last) || r.bygone(c, last) && r.since(last) {
			return "", false
		}
	}
	return "pod completed", true
}

// initFailed reports that an init container has failed and is not restarted.
func (r revision) initFailed() bool {
	return slices.ContainsFunc(r.Pod.Spec.InitContainers, func(c v1.Container) bool {
		last, _, found := r.mine.Last(r.Pod.UID, c.Name)
		return found && last.State == pod.Exited && last.ExitCode != 0 && !r.isFollowed(&c, last)
	})
}

// deadline returns the time until which the pod may be active.
func (r revision) deadline() (at time.Time, has bool) {
	seconds := r.Pod.Spec.ActiveDeadlineSeconds
	if seconds == nil || r.Since.IsZero() {
		return time.Time{}, false
	}
	return r.Since.Add(pod.Seconds(*seconds)), true
}

// late reports whether the pod had not finished when its deadline passed. It depends on recorded times only, so that
// the result stays the same whatever exit codes the terminated containers return.
func (r revision) late() bool {
	deadline, has := r.deadline()
	if !has || r.Now.Before(deadline) || r.Interrupted && !r.forGood { // that one begins anew
		return false
	}
	if _, ended := r.ended(); !ended {
		return true
	}
	return r.anyLast(func(last pod.Container) bool {
		return pod.SidecarOrder(r.Pod, last.Name) == 0 && !last.FinishedAt.Before(deadline)
	})
}

// interrupts reports that it is to be recorded that the shutdown of the machine interrupts the revision: what has
// completed does not run again, and the exit codes of its containers could be taken for that. A pod that runs once ever
// is none of these if a container of it is restarted whatever it returns.
func (r revision) interrupts() bool {
	anew := slices.ContainsFunc(r.Pod.Spec.Containers, func(c v1.Container) bool { return ShouldRestart(r.Pod, &c, 0) })
	never := !r.onceEver && r.Pod.Spec.RestartPolicy == v1.RestartPolicyNever
	return !r.Interrupted && (r.job || !anew || never) && slices.ContainsFunc(r.mine.Containers, isAlive)
}

// beginsAnew reports that a shutdown has interrupted the revision, and that it starts from the beginning when that is
// over. One that runs once ever does if all of it may run again after a failure; the pod of a Job does not: the Job
// gets another one.
func (r revision) beginsAnew() bool {
	never := func(c *v1.Container) bool { return policyOf(r.Pod, c) == v1.RestartPolicyNever }
	return r.Interrupted && r.Limits.Shutdown == nil && !r.job &&
		(!r.onceEver || !slices.ContainsFunc(pod.AllContainers(r.Pod), never))
}

// pulling reports whether an image of the revision is being pulled.
func (r revision) pulling() bool {
	return slices.ContainsFunc(pod.AllContainers(r.Pod), func(c *v1.Container) bool { return r.Images[c.Name].Pulling })
}

// ranIn reports whether a container of the revision has run in the sandbox.
func (r revision) ranIn(s pod.Sandbox) bool {
	return slices.ContainsFunc(slices.Concat(r.mine.Containers, r.mine.Remembered), func(c pod.Container) bool {
		return c.SandboxID == s.ID && c.State != pod.Created
	})
}

// runsAgain reports whether what is left of the revision belongs to an earlier run: all of it is removed and the pod
// starts from the beginning. A job that a reboot interrupted runs again as a whole, but none that the policy refuses.
func (r revision) runsAgain() bool {
	if r.mine.Empty() || r.Refused != "" && !r.Replaced {
		return false
	}
	alive := slices.ContainsFunc(r.mine.Containers, isAlive)
	_, over := r.ended()
	over = over || !alive && r.late() // a late instance that still lives is terminated first
	if r.Replaced || r.Earlier && (len(r.mine.Containers) == 0 || over) || !alive && r.beginsAnew() {
		return true
	}
	if alive || r.onceEver || r.Pod.Spec.RestartPolicy == v1.RestartPolicyAlways && !over {
		return false
	}
	old := r.anyLast(func(last pod.Container) bool { return last.Boot != r.Boot })
	now := r.anyLast(func(last pod.Container) bool { return last.Boot == r.Boot })
	return old && !now // with both, it goes on container by container
}
