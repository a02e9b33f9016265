package runtime

import (
	"errors"

	"podrun.io/podrun/internal/pod"
)

// ErrNotFound says that what was asked for is not there.
var ErrNotFound = errors.New("not found")

// ErrUnavailable says that the runtime could not be reached; nothing was learnt and nothing done.
var ErrUnavailable = errors.New("container runtime unavailable")

// UnknownError is List's when it could not be told of some pods what they are like, as when what serves them hangs.
// What is returned beside it is whole for all others.
type UnknownError struct {
	// Pods are what was seen of those pods; there may be more.
	Pods []pod.Observed
	// Err says why, pod by pod.
	Err error
}

func (e *UnknownError) Error() string { return e.Err.Error() }
func (e *UnknownError) Unwrap() error { return e.Err }

// WithheldError says that a pod is another's, who keeps its checkpoint: nothing may be done to it.
type WithheldError struct {
	// Owner is for people.
	Owner string
	Err   error
}

func (e *WithheldError) Error() string { return e.Err.Error() }
func (e *WithheldError) Unwrap() error { return e.Err }

// ErrNoStdin says that an instance has no standard input to be written to, or none any more.
var ErrNoStdin = errors.New("no standard input")

// ErrCutOff is a Driver's when a start may go on, or has left something: the instance is to be removed before
// another is started in its place.
var ErrCutOff = errors.New("the start was cut off")

// StartError is a container that was made but whose process could not be started. The instance is
// recorded as Exited with code 128, as the CRI does it.
type StartError struct {
	Err error
	// Unknown says that the process may have run, as when its shim was killed before it answered: nothing of it runs any
	// more, and nobody saw how it ended. The instance is recorded as Exited with code 255.
	Unknown bool
}

func (e *StartError) Error() string { return e.Err.Error() }
func (e *StartError) Unwrap() error { return e.Err }

// ReasonError carries the reason that a status shows, as Kubernetes spells it, for an error.
type ReasonError struct {
	Reason string
	Err    error
}

func (e *ReasonError) Error() string { return e.Err.Error() }
func (e *ReasonError) Unwrap() error { return e.Err }

// ReasonHostPortConflict is the reason of a sandbox that waits for a port of the machine's.
const ReasonHostPortConflict = "HostPortConflict"

// ReasonFailedMount is how a status shows that a volume is not ready.
const ReasonFailedMount = "FailedMount"
