// Package plan decides what to do next for one pod. [Compute] maps an [Input] (the wanted pod, what
// was observed of it, and the time) to a [Plan]: the actions to execute, when to compute again, and
// why each container that does not run is waiting.
//
// The package is pure: it executes nothing, reads no clock and keeps no state between calls.
// Package reconcile collects the input and executes the actions. Begin reading at [Compute] in
// compute.go.
package plan

import (
	"fmt"
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
	// Failures holds, by container name, the last failed attempt that left no instance. The key ""
	// is the sandbox; the prefixes FailureResize and FailureSandbox make further keys.
	Failures map[string]Failure
	// Probed holds the probe and hook results of each instance, by instance ID.
	Probed map[string]pod.Probed
	// Since is when the run of the wanted revision began; zero if it has not begun. It survives
	// restarts of podrun.
	Since time.Time
	// MaxGrace limits every grace period; nil means no limit, 0 means that everything is killed at
	// once. It may become shorter while instances are being terminated.
	MaxGrace *time.Duration
	// Halted reports that the machine is shutting down: everything is terminated, nothing is
	// started, and no sandbox, container or data is removed.
	Halted bool
	// After lists the pods that this one starts after and that have not yet succeeded or, with the
	// restartPolicy Always, become ready.
	After []pod.Key
	// Boot is the current boot ID of the kernel.
	Boot string
	// Node is what the machine offers to pods, and Used is what the other pods on it have
	// requested. NodeLabels are the labels that nodeSelector is matched against.
	Node, Used v1.ResourceList
	NodeLabels map[string]string
	// Earlier reports that a completed pod belongs to an earlier run and is to be run again.
	Earlier bool
	// Replaced reports that what exists under the wanted UID was created from another manifest,
	// which happens when the manifest fixes its UID. All of it is terminated and removed before the
	// pod starts.
	Replaced bool
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
	// Wake is the delay after which to compute again even if no event arrives; 0 means no timer is
	// needed.
	Wake time.Duration
	// Waiting holds, by container name, why a container is not running.
	Waiting map[string]Waiting
	// ResizePending is the reason and message of the condition PodResizePending: why the pod is not
	// allocated the CPU and memory of its manifest; nil if it is.
	ResizePending *Waiting
	// Resizing is the reason and message of the condition PodResizeInProgress: something that runs
	// does not have the allocated CPU and memory yet; nil if everything has.
	Resizing *Waiting
	// Restarting reports that all containers are about to be restarted together.
	Restarting bool
	// Next is when the first of the failed operations is retried; zero if there is none.
	Next time.Time
	// Completed reports that no container runs or will run again.
	Completed bool
	// Failure is why the pod as a whole has failed or cannot start now; nil if the state of the
	// containers says enough.
	Failure *Waiting
	// Again reports that what exists under the wanted UID is being terminated and removed so that
	// the pod can start from the beginning.
	Again bool
	// Gone reports that the pod is not wanted and that nothing of it is left.
	Gone bool
}

// Waiting is the reason and message of a container that is not running, as in a
// v1.ContainerStateWaiting.
type Waiting struct{ Reason, Message string }

// Action is one operation to execute. The set of actions is closed, and every action is plain data.
type Action interface {
	fmt.Stringer
	action()
}

// The actions. Why is the cause, as a text for events and logs.
type (
	// CreateSandbox creates the pod's namespaces and network.
	CreateSandbox struct{ Attempt int }
	// RemoveSandbox releases a sandbox's namespaces and network. Lost reports that the pod has
	// another sandbox, or gets one, that must not wait for this removal.
	RemoveSandbox struct {
		ID, Why string
		Lost    bool
	}
	// EnsureImage finds or pulls a container's image.
	EnsureImage struct{ Container string }
	// StartContainer creates and starts an instance.
	StartContainer struct {
		Container        string
		Attempt, Backoff int
		// RestartGeneration counts how often all containers of the pod have been restarted
		// together.
		RestartGeneration int
		Why               string
	}
	// RunPreStop starts an instance's preStop hook, and with it the grace period.
	RunPreStop struct {
		ID, Container string
		Grace         time.Duration
		Why           string
	}
	// Terminate sends an instance its stop signal.
	Terminate struct {
		ID, Container string
		Grace         time.Duration
		Why           string
	}
	// Kill sends an instance SIGKILL.
	Kill struct{ ID, Container, Why string }
	// Resize applies the resources To to a running instance, in place.
	Resize struct{ ID, Container, To string }
	// Allocate gives the pod the CPU and memory of its manifest, as far as the machine has them.
	// Anew means that nothing of the pod is left running, so that the machine's resources are
	// checked when the pod starts.
	Allocate struct{ Anew bool }
	// Renew terminates an instance, which is followed by one with the CPU and memory that the pod
	// has been allocated.
	Renew struct{ ID, Container string }
	// Reap records an instance's exit and releases what the instance held.
	Reap struct{ ID, Container string }
	// RemoveContainer removes what is left of an instance, its record included.
	RemoveContainer struct{ ID, Container, Why string }
	// RemoveData removes a revision's directory and logs.
	RemoveData struct{ UID pod.UID }
)

func (CreateSandbox) action()   {}
func (RemoveSandbox) action()   {}
func (EnsureImage) action()     {}
func (StartContainer) action()  {}
func (RunPreStop) action()      {}
func (Terminate) action()       {}
func (Kill) action()            {}
func (Resize) action()          {}
func (Allocate) action()        {}
func (Renew) action()           {}
func (Reap) action()            {}
func (RemoveContainer) action() {}
func (RemoveData) action()      {}

func (a CreateSandbox) String() string { return fmt.Sprintf("create sandbox attempt %d", a.Attempt) }
func (a RemoveSandbox) String() string { return fmt.Sprintf("remove sandbox %s (%s)", a.ID, a.Why) }
func (a EnsureImage) String() string   { return "ensure image of " + a.Container }
func (a StartContainer) String() string {
	return fmt.Sprintf("start %s attempt %d back-off %d (%s)", a.Container, a.Attempt, a.Backoff, a.Why)
}
func (a RunPreStop) String() string {
	return fmt.Sprintf("run preStop hook of %s %s grace %s (%s)", a.Container, a.ID, a.Grace, a.Why)
}
func (a Terminate) String() string {
	return fmt.Sprintf("terminate %s %s grace %s (%s)", a.Container, a.ID, a.Grace, a.Why)
}
func (a Kill) String() string   { return fmt.Sprintf("kill %s %s (%s)", a.Container, a.ID, a.Why) }
func (a Resize) String() string { return fmt.Sprintf("resize %s %s to %q", a.Container, a.ID, a.To) }
func (a Allocate) String() string {
	if a.Anew {
		return "allocate what the manifest says, for a new start"
	}
	return "allocate what the manifest says"
}
func (a Renew) String() string { return fmt.Sprintf("renew %s %s (resize)", a.Container, a.ID) }
func (a Reap) String() string  { return fmt.Sprintf("reap %s %s", a.Container, a.ID) }
func (a RemoveContainer) String() string {
	return fmt.Sprintf("remove %s %s (%s)", a.Container, a.ID, a.Why)
}
func (a RemoveData) String() string { return fmt.Sprintf("remove data of %s", a.UID) }
