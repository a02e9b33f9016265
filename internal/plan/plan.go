// Package plan decides what to do next for one pod. [Compute] maps an [Input] (the wanted pod, what
// was observed of it, and the time) to a [Plan]: the actions to execute, when to compute again, and
// why each container that does not run is waiting.
//
// The package is pure: it executes nothing, reads no clock and keeps no state between calls. Package reconcile
// collects the input and executes the actions. Before that, [SelectRevision] (select.go) decides which revision of the
// pod is wanted. [Grace] (grace.go) decides how long an instance has to terminate.
//
// Begin reading at [Compute] in compute.go. revision.go answers questions about the wanted revision, such as whether
// it is over and whether it runs again after a reboot; restart.go and backoff.go say whether and when a container
// starts again. Each further file plans for one subject and adds its actions to the plan: sandbox.go, init.go,
// container.go, resize.go, terminate.go, cleanup.go.
package plan

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Input is everything that Compute decides from.
type Input struct {
	// Pod is the wanted pod, with the UID that it runs under; nil if the pod is to be removed.
	Pod *v1.Pod
	// Resized is Pod with the CPU and memory of its manifest, if they differ from what the pod has
	// been allocated; nil if they are the same.
	Resized  *v1.Pod
	Observed pod.Observed
	// Images holds the image state of each container, by container name.
	Images map[string]Image
	// Signalled holds the signals that were sent to each instance, by instance ID.
	Signalled map[string]pod.Signals
	// Evicted is the reason why the pod is evicted; "" if it is not.
	Evicted string
	// Interrupted reports that a shutdown of the machine terminates the pod, as is recorded: it has not completed.
	Interrupted bool
	// Failures holds, by container name, the last failed attempt that left no instance. The key ""
	// is the sandbox, FailureMount are the volumes; the prefixes FailureResize and FailureSandbox make further keys.
	Failures map[string]Failure
	// Probed holds the probe and hook results of each instance, by instance ID.
	Probed map[string]pod.Probed
	// Since is when the run of the wanted revision began; zero if it has not begun. It survives restarts of podrun.
	Since time.Time
	// Limits are the upper limits of all grace periods, and whether the machine is shutting down.
	Limits GraceLimits
	// After lists the pods that this one starts after and that have not yet succeeded or, with the
	// restartPolicy Always, become ready.
	After []pod.Key
	// Boot is the current boot ID of the kernel.
	Boot    string
	Machine Machine
	// NodeLabels are the labels that nodeSelector is matched against.
	NodeLabels map[string]string
	// Earlier reports that a completed pod belongs to an earlier run and is to be run again.
	Earlier bool
	// Replaced reports that what exists under the wanted UID was created from another manifest, which happens when the
	// manifest fixes its UID. All of it is terminated and removed before the pod starts.
	Replaced bool
	// Refused is why the policy does not allow Pod, which is kept nevertheless: what runs of it goes on,
	// but it gets no new sandbox. "" if it is allowed.
	Refused string
	// MaxBackoff is the longest crash back-off; 0 means 5 minutes.
	MaxBackoff time.Duration
	Now        time.Time
}

// Image is the state of a container's image.
type Image struct {
	// Pulling reports that a pull is in progress.
	Pulling bool
	// Progress describes the progress of the pull for people; "" if there is no information yet.
	Progress string
	// Ready reports that the image is present and can be run.
	Ready bool
}

// Failure describes failed attempts, in a row, at an operation that left nothing behind.
type Failure struct {
	// Reason is the reason as the pod status shows it: ErrImagePull, CreateContainerConfigError, …
	Reason  string
	Message string
	At      time.Time
	// Count is the number of consecutive failures.
	Count int
}

// Plan is the result of Compute.
type Plan struct {
	// Actions are what to execute now, in this order.
	Actions []Action
	// Wake is the delay after which to compute again even if no event arrives; 0 means no timer is needed.
	Wake time.Duration
	// Waiting holds, by container name, why a container is not running.
	Waiting map[string]Waiting
	// ResizePending is the reason and message of the condition PodResizePending: why the pod is not
	// allocated the CPU and memory of its manifest; nil if it is.
	ResizePending *Waiting
	// Resizing is the reason and message of the condition PodResizeInProgress: something that runs
	// does not have the allocated CPU and memory yet; nil if everything has.
	Resizing *Waiting
	// Unmounted is why a volume that the pod needs is not mounted; nil if none is missing.
	Unmounted *Waiting
	// Restarting reports that all containers are about to be restarted together.
	Restarting bool
	// Next is when the first of the failed operations is retried; zero if there is none.
	Next time.Time
	// Completed reports that no container runs or will run again.
	Completed bool
	// Unsure reports that a container may still run although it is seen as exited: nobody observed its
	// exit, and it has not been reaped.
	Unsure bool
	// Failure is why the pod as a whole has failed or cannot start now; nil if the state of the containers says enough.
	Failure *Waiting
	// Never is why the pod can never start on this machine; nil if it can, or runs.
	Never *Waiting
	// Again reports that the pod starts from the beginning: what exists under its UID is of an
	// earlier run, and is terminated and removed first.
	Again bool
	// Gone reports that the pod is not wanted and that nothing of it is left.
	Gone bool
}

// Waiting is the reason and message of a container that is not running, as in a v1.ContainerStateWaiting.
type Waiting struct{ Reason, Message string }

// add appends actions to the plan.
func (p *Plan) add(actions ...Action) { p.Actions = append(p.Actions, actions...) }

// wakeIn makes the plan's Wake at most d.
func (p *Plan) wakeIn(d time.Duration) {
	if d = max(d, time.Millisecond); p.Wake == 0 || d < p.Wake {
		p.Wake = d
	}
}

// retryAt records that something that failed is retried at the time at, which is later than now.
func (p *Plan) retryAt(at, now time.Time) {
	p.wakeIn(at.Sub(now))
	if p.Next.IsZero() || at.Before(p.Next) {
		p.Next = at
	}
}

// wait makes all of the containers wait with w.
func (p *Plan) wait(w Waiting, containers ...*v1.Container) {
	for _, c := range containers {
		p.Waiting[c.Name] = w
	}
}

// resizing records that something that runs does not have the allocated resources yet.
func (p *Plan) resizing() {
	if p.Resizing == nil {
		p.Resizing = &Waiting{}
	}
}

// starting reports whether the plan contains a start, or a step right before one. Nothing is cleaned up until then.
func (p *Plan) starting() bool {
	return slices.ContainsFunc(p.Actions, func(a Action) bool {
		switch a.(type) {
		case Allocate, CreateSandbox, EnsureImage, StartContainer:
			return true
		}
		return false
	})
}
