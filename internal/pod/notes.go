package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Signals is how far an instance has been brought to its end; a zero time: not yet.
type Signals struct {
	// Asked is when its grace period began: with its preStop hook, if it has one, else with its stop signal.
	Asked time.Time
	// Hooked is when its preStop hook ended.
	Hooked time.Time
	// Told is when it was sent its stop signal, Killed when it was sent KILL.
	Told, Killed time.Time
	// Hooking says that this podrun runs its preStop hook. Another podrun's ended with it.
	Hooking bool `json:"-"`
}

// Notes are what is noted down of an instance's course, for the next podrun.
type Notes struct {
	// PostStartDue says that its postStart hook is not done. As long as that is so each podrun runs it: as in Kubernetes
	// a hook may run twice, but is not left out. It is noted down at the start, because of an instance that a podrun
	// started which did not note such things down it has to be taken that its hook is done.
	PostStartDue bool `json:",omitzero"`
	Signals
	// Failed is why it has to end though it is wanted; nil: nothing was noted.
	Failed *Failed
	// Unwanted says that it was ended because its revision was not wanted.
	Unwanted bool `json:",omitzero"`
}

// NotesAtStart are an instance's first notes, made before its process runs.
func NotesAtStart(c *v1.Container) Notes {
	return Notes{PostStartDue: c.Lifecycle != nil && c.Lifecycle.PostStart != nil}
}
