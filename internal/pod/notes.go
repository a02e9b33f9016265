package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Signals is how far an instance has been brought to its end; a zero time: not yet.
type Signals struct {
	// Asked is when its grace period began: with its preStop hook, if it has one, else with its stop signal.
	Asked time.Time `json:",omitzero"`
	// Hooked is when its preStop hook ended.
	Hooked time.Time `json:",omitzero"`
	// Signalled is when it was sent its stop signal, Killed when it was sent KILL.
	Signalled time.Time `json:"Told,omitzero"`
	Killed    time.Time `json:",omitzero"`
	// Hooking says that this podrun runs its preStop hook. Another podrun's ended with it.
	Hooking bool `json:"-"`
}

// Notes are what is kept of an instance's course, for the next podrun.
type Notes struct {
	// Started and Ready are what its startup and readiness probes have said last, Since when that changed; nil:
	// nothing yet, or there is no such probe. Only this instance's own probes are ever recorded here.
	Started *bool     `json:",omitzero"`
	Ready   *bool     `json:",omitzero"`
	Since   time.Time `json:",omitzero"`
	// PostStartDue says that its postStart hook is not done. As long as that is so each podrun runs it: as in Kubernetes
	// a hook may run twice, but is not left out. It is noted down at the start, because of an instance that a podrun
	// started which did not note such things down it has to be taken that its hook is done.
	PostStartDue bool `json:",omitzero"`
	Signals
	// Failed is why it has to end though it is wanted; nil: nothing was noted.
	Failed *Failed `json:",omitzero"`
	// Unwanted says that it was ended because its revision was not wanted.
	Unwanted bool `json:",omitzero"`
}

// NotesAtStart are an instance's first notes, made before its process runs.
func NotesAtStart(c *v1.Container) Notes {
	return Notes{PostStartDue: c.Lifecycle != nil && c.Lifecycle.PostStart != nil}
}
