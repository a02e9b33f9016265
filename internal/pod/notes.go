package pod

import "time"

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
	// PostStarted says that its postStart hook is done. Until it is, each podrun runs it: as in Kubernetes a hook
	// may run twice, but is not left out.
	PostStarted bool `json:",omitzero"`
	Signals
	// Failed is why it has to end though it is wanted; nil: nothing was noted.
	Failed *Failed
	// Unwanted says that it was ended because its revision was not wanted.
	Unwanted bool `json:",omitzero"`
}
