package plan

import (
	"fmt"
	"strings"
	"time"

	"podrun.io/podrun/internal/pod"
)

// Action is one operation to execute. The set of actions is closed, and every action is plain data.
type Action interface {
	fmt.Stringer
	action()
}

// The actions. Why is the cause, as a text for events and logs.
type (
	// CreateSandbox creates the pod's namespaces and network.
	CreateSandbox struct{ Attempt int }
	// RemoveSandbox releases a sandbox's namespaces and network. Lost reports that the pod has another sandbox, or
	// gets one, that must not wait for this removal, and Completed that the pod has ended.
	RemoveSandbox struct {
		ID, Why         string
		Lost, Completed bool
	}
	// EnsureImage finds or pulls a container's image.
	EnsureImage struct{ Container string }
	// StartContainer creates and starts an instance. Mount says that nothing has run in the sandbox yet: all of the
	// pod's volumes are mounted before.
	StartContainer struct {
		Container        string
		Mount            bool
		Attempt, Backoff int
		// RestartGeneration counts how often all containers of the pod have been restarted together.
		RestartGeneration int
		Why               string
	}
	// RunPreStop starts an instance's preStop hook, and with it the grace period. Yields says that all of the pod is
	// terminated and does not start again by itself, so that another pod may have its host ports.
	RunPreStop struct {
		ID, Container string
		Grace         time.Duration
		Why           string
		Yields        bool
	}
	// Terminate sends an instance its stop signal. Yields is that of RunPreStop.
	Terminate struct {
		ID, Container string
		Grace         time.Duration
		Why           string
		Yields        bool
	}
	// RenewGrace begins the grace period of an instance anew: that of its pod's termination, which yields its ports.
	RenewGrace struct{ ID, Container, Why string }
	// Kill sends an instance SIGKILL.
	Kill struct{ ID, Container, Why string }
	// Resize applies the resources To, and the CPUs to run on, to a running instance, in place.
	Resize struct{ ID, Container, To, CPUs string }
	// Allocate gives the pod the CPU and memory of its manifest, as far as the machine has them. Anew means that
	// nothing of the pod is left running, so that the machine's resources are checked when the pod starts.
	Allocate struct{ Anew bool }
	// RestartForResize terminates an instance, which is followed by one with the CPU and memory that the pod
	// has been allocated.
	RestartForResize struct{ ID, Container string }
	// RestartOnRequest saves that an instance is terminated and followed by another one, because a user has
	// requested it.
	RestartOnRequest struct{ ID, Container string }
	// ReleaseVolumes makes CSI drivers unmount the volumes of a pod that the shutdown of the machine has ended.
	ReleaseVolumes struct{}
	// Interrupt records that the shutdown of the machine terminates the pod. Must says that the pod waits for that.
	Interrupt struct{ Must bool }
	// Reap records an instance's exit and releases what the instance held.
	Reap struct{ ID, Container string }
	// RemoveContainer removes what is left of an instance, its record included.
	RemoveContainer struct{ ID, Container, Why string }
	// RemoveData removes a revision's directory and logs.
	RemoveData struct{ UID pod.UID }
)

func (CreateSandbox) action()    {}
func (RemoveSandbox) action()    {}
func (EnsureImage) action()      {}
func (StartContainer) action()   {}
func (RunPreStop) action()       {}
func (Terminate) action()        {}
func (RenewGrace) action()       {}
func (Kill) action()             {}
func (Resize) action()           {}
func (Allocate) action()         {}
func (RestartForResize) action() {}
func (RestartOnRequest) action() {}
func (ReleaseVolumes) action()   {}
func (Interrupt) action()        {}
func (Reap) action()             {}
func (RemoveContainer) action()  {}
func (RemoveData) action()       {}

func (a CreateSandbox) String() string { return fmt.Sprintf("create sandbox attempt %d", a.Attempt) }
func (a RemoveSandbox) String() string { return fmt.Sprintf("remove sandbox %s (%s)", a.ID, a.Why) }
func (a EnsureImage) String() string   { return "ensure image of " + a.Container }
func (a StartContainer) String() string {
	if a.Mount {
		a.Why += ", after the volumes are mounted"
	}
	return fmt.Sprintf("start %s attempt %d back-off %d (%s)", a.Container, a.Attempt, a.Backoff, a.Why)
}
func (a RunPreStop) String() string {
	return fmt.Sprintf("run preStop hook of %s %s grace %s (%s)", a.Container, a.ID, a.Grace, a.Why)
}
func (a Terminate) String() string {
	return fmt.Sprintf("terminate %s %s grace %s (%s)", a.Container, a.ID, a.Grace, a.Why)
}
func (a RenewGrace) String() string {
	return fmt.Sprintf("begin grace period of %s %s anew (%s)", a.Container, a.ID, a.Why)
}
func (a Kill) String() string { return fmt.Sprintf("kill %s %s (%s)", a.Container, a.ID, a.Why) }
func (a Resize) String() string {
	return strings.TrimSpace(fmt.Sprintf("resize %s %s to %q %s", a.Container, a.ID, a.To, a.CPUs))
}
func (a Allocate) String() string {
	if a.Anew {
		return "allocate what the manifest says, for a new start"
	}
	return "allocate what the manifest says"
}
func (a RestartForResize) String() string {
	return fmt.Sprintf("renew %s %s (resize)", a.Container, a.ID)
}
func (a RestartOnRequest) String() string {
	return fmt.Sprintf("accept restart of %s %s", a.Container, a.ID)
}
func (a ReleaseVolumes) String() string { return "make CSI drivers unmount the pod's volumes" }
func (a Interrupt) String() string      { return "record that the shutdown interrupts the pod" }
func (a Reap) String() string           { return fmt.Sprintf("reap %s %s", a.Container, a.ID) }
func (a RemoveContainer) String() string {
	return fmt.Sprintf("remove %s %s (%s)", a.Container, a.ID, a.Why)
}
func (a RemoveData) String() string { return fmt.Sprintf("remove data of %s", a.UID) }
