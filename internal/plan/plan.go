// Package plan is podrun's judgement: given what is wanted, what was seen and the time, it says what to
// do next and why a container is not running. It is pure; it does nothing and remembers nothing.
package plan

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Input is everything that a judgement rests on.
type Input struct {
	// Pod is what is wanted, under the UID that it shall run with; nil when the pod should be gone.
	Pod *v1.Pod
	// Resized is Pod with the CPU and memory that its manifest says, where that is not what it has been given;
	// nil: it is.
	Resized  *v1.Pod
	Observed pod.Observed
	// Images tells, per container name, how far its image is.
	Images map[string]Image
	// Signalled tells, per instance ID, what was sent to it.
	Signalled map[string]pod.Signals
	// Evicted is why the pod has to end though it would run on; "" if it need not.
	Evicted string
	// Failures tells, per container name, the last attempt that made no instance; under "" the sandbox's.
	Failures map[string]Failure
	// Probed tells, per instance ID, what probes have found.
	Probed map[string]pod.Probed
	// Since is when the wanted revision's run began; zero: it has not. It outlives podrun.
	Since time.Time
	// MaxGrace is the longest grace period that anything is given to end; nil: its own; 0: all is killed at once.
	// It may get shorter while something is being ended.
	MaxGrace *time.Duration
	// Halted says that the machine shuts down: all is ended, nothing is started, and nothing of it is removed.
	Halted bool
	// After are the pods that this one is to start after and that have not come to their result.
	After []pod.Key
	// Boot is the kernel's boot id now.
	Boot string
	// Node is what the machine has for pods, Used what the other pods there have requested of it; NodeLabels
	// is what nodeSelector chooses by.
	Node, Used v1.ResourceList
	NodeLabels map[string]string
	// Earlier says that a completed pod belongs to an earlier run and is to be run again.
	Earlier bool
	// Replaced says that what is there under the wanted UID was made for another manifest, as when the
	// manifest fixes its UID: it is ended whole first.
	Replaced bool
	// MaxBackoff is the longest crash back-off; 0 means 5 minutes.
	MaxBackoff time.Duration
	Now        time.Time
}

// Image is the state of one container's image.
type Image struct {
	// Pulling: a pull is under way.
	Pulling bool
	// Progress is how far the pull is, for people; "" until something is known.
	Progress string
	// Ready: the image can be run.
	Ready bool
}

// Failure is an attempt to make something that left nothing behind.
type Failure struct {
	// Reason as a status shows it: ErrImagePull, CreateContainerConfigError, …
	Reason  string
	Message string
	At      time.Time
	// Count is how many times in a row.
	Count int
}

// Plan is what to do now.
type Plan struct {
	Actions []Action
	// Wake says when to judge again though nothing was heard; 0: no need.
	Wake time.Duration
	// Waiting tells, per container name, why it is not running.
	Waiting map[string]Waiting
	// ResizePending is why the pod does not have the CPU and memory that its manifest says, in the words of the
	// condition PodResizePending; nil: it has been given them.
	ResizePending *Waiting
	// Resizing says that something that runs has not got yet what the pod has been given, in the words of the
	// condition PodResizeInProgress; nil: all has.
	Resizing *Waiting
	// Restarting says that all containers are about to restart together.
	Restarting bool
	// Next is when the first of what failed is tried again; zero: nothing is.
	Next time.Time
	// Completed says that no container runs or will run again.
	Completed bool
	// Failure is why the pod as a whole has failed, or cannot start now; nil: its containers tell.
	Failure *Waiting
	// Again says that what is there under the wanted UID is being ended, so that the pod can start anew.
	Again bool
	// Gone says that the pod is not wanted and nothing is left of it.
	Gone bool
}

// Waiting is why a container is not running, as Kubernetes spells it.
type Waiting struct{ Reason, Message string }

// Action is one effect; the set is closed and every member is plain data.
type Action interface {
	fmt.Stringer
	action()
}

// The actions. Why is for people.
type (
	// CreateSandbox makes the pod's namespaces and network.
	CreateSandbox struct{ Attempt int }
	// RemoveSandbox releases them. Lost says that the pod has, or gets, another one that must not wait for this.
	RemoveSandbox struct {
		ID, Why string
		Lost    bool
	}
	// EnsureImage finds or pulls a container's image.
	EnsureImage struct{ Container string }
	// StartContainer makes and starts an instance.
	StartContainer struct {
		Container        string
		Attempt, Backoff int
		// RestartGeneration counts how often all containers of the pod have been restarted together.
		RestartGeneration int
		Why               string
	}
	// RunPreStop begins an instance's preStop hook, and its grace period with it.
	RunPreStop struct {
		ID, Container string
		Grace         time.Duration
		Why           string
	}
	// Terminate asks an instance to end.
	Terminate struct {
		ID, Container string
		Grace         time.Duration
		Why           string
	}
	// Kill ends an instance at once.
	Kill struct{ ID, Container, Why string }
	// Resize gives a running instance the CPU and memory that the manifest says now.
	Resize struct{ ID, Container, To string }
	// Allocate gives the pod the CPU and memory that its manifest says, as far as the machine has them. Anew: it
	// is there no more, so that this is asked when it starts.
	Allocate struct{ Anew bool }
	// Renew has an instance end, to be followed by one with the CPU and memory that the pod has been given.
	Renew struct{ ID, Container string }
	// Reap records an instance's exit and frees what it held.
	Reap struct{ ID, Container string }
	// RemoveContainer removes an instance's last traces.
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
