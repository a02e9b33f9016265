package runtime

import (
	"errors"

	"podrun.io/podrun/internal/pod"
)

// ErrNotFound reports that the requested object does not exist.
var ErrNotFound = errors.New("not found")

// ErrUnavailable reports that the runtime could not be reached: nothing was read and nothing was
// done.
var ErrUnavailable = errors.New("container runtime unavailable")

// UnknownError is returned by List when the state of some pods could not be read, for example
// because their shim hangs. The list that is returned with it is complete for all other pods.
type UnknownError struct {
	// Pods hold what was read of those pods. There may be more of each than they hold.
	Pods []pod.Observed
	// Err holds the cause for each pod.
	Err error
}

func (e *UnknownError) Error() string { return e.Err.Error() }
func (e *UnknownError) Unwrap() error { return e.Err }

// WithheldError reports that another program owns the checkpoint of a pod, such as a later version
// of podrun: nothing may be done to the pod.
type WithheldError struct {
	// Owner describes that program for people.
	Owner string
	Err   error
}

func (e *WithheldError) Error() string { return e.Err.Error() }
func (e *WithheldError) Unwrap() error { return e.Err }

// ErrNoStdin reports that an instance has no standard input to write to, or has none any more.
var ErrNoStdin = errors.New("no standard input")

// ErrCutOff is returned by a Driver when a start was interrupted and may continue, or has left
// something behind. The instance has to be removed before another one is started in its place.
var ErrCutOff = errors.New("the start was interrupted")

// StartError reports that a container was created but that its process could not be started. The
// instance is recorded as Exited with exit code 128, as the CRI records it.
type StartError struct {
	Err error
	// Unknown means that the process may have run, for example if its shim was killed before it
	// answered. No process of the instance runs any more and its exit was not observed. The
	// instance is recorded as Exited with exit code 255.
	Unknown bool
}

func (e *StartError) Error() string { return e.Err.Error() }
func (e *StartError) Unwrap() error { return e.Err }

// ReasonError adds to an error the reason that the pod's status shows, spelled as in Kubernetes.
type ReasonError struct {
	Reason string
	Err    error
}

func (e *ReasonError) Error() string { return e.Err.Error() }
func (e *ReasonError) Unwrap() error { return e.Err }

// PermanentError reports that the same operation fails again until somebody changes something.
type PermanentError struct {
	// Fix says what to change; "" if the error says it.
	Fix string
	Err error
}

func (e *PermanentError) Error() string { return e.Err.Error() }
func (e *PermanentError) Unwrap() error { return e.Err }

// Hint returns Fix.
func (e *PermanentError) Hint() string { return e.Fix }

// Permanent returns err as a PermanentError that has a reason.
func Permanent(reason string, err error) error {
	return &ReasonError{Reason: reason, Err: &PermanentError{Err: err}}
}

// ReasonHostPortConflict is the reason of a sandbox that waits for a host port.
const ReasonHostPortConflict = "HostPortConflict"

// ReasonAdmission is the kubelet's reason of a pod whose devices a plugin does not allocate.
const ReasonAdmission = "UnexpectedAdmissionError"

// The kubelet's reasons of a container that was not created.
const (
	// ReasonConfig means that the environment, a subPath or another part of the container's
	// configuration cannot be made.
	ReasonConfig = "CreateContainerConfigError"
	// ReasonCreate is the reason of all other failures.
	ReasonCreate = "CreateContainerError"
)
