package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Signals records the steps of an instance's termination. A zero time means that the step has not happened.
type Signals struct {
	// Asked is when the grace period began: with the preStop hook if there is one, else with the stop signal.
	Asked time.Time `json:",omitzero"`
	// Alone reports that the pod was to go on then. When the pod ends, a grace period of its own begins.
	Alone bool `json:",omitzero"`
	// HookRuns is how many podrun processes have begun the preStop hook, or were to: it is counted before.
	HookRuns int `json:",omitzero"`
	// Hooked is when the preStop hook ended.
	Hooked time.Time `json:",omitzero"`
	// Signalled is when the stop signal was sent, Killed when SIGKILL was sent.
	Signalled time.Time `json:"Told,omitzero"`
	Killed    time.Time `json:",omitzero"`
	// Hooking reports that this podrun process is running the preStop hook. The hook of an earlier
	// podrun process ended with that process.
	Hooking bool `json:"-"`
}

// Notes is what the checkpoint keeps of an instance's history for the next podrun process.
type Notes struct {
	// Started and Ready are the last results of the startup and the readiness probe, and Since is
	// when they changed; nil if there is no result yet or no such probe. Only this instance's own
	// probes are recorded here.
	Started *bool     `json:",omitzero"`
	Ready   *bool     `json:",omitzero"`
	Since   time.Time `json:",omitzero"`
	// PostStartDue reports that the postStart hook has not completed. Until it has, every new
	// podrun process runs it: as in Kubernetes a hook may run twice but is never skipped. It is
	// recorded at the start of the instance, because older versions of podrun did not record it:
	// without it the hook counts as completed.
	PostStartDue bool `json:",omitzero"`
	Signals
	// Failed is why the instance has to be terminated although it is wanted; nil if there is no such reason.
	Failed *Failed `json:",omitzero"`
	// Unanswered is when the last stop signal was sent that may have been delivered: it has no answer.
	Unanswered time.Time `json:",omitzero"`
	// Unwanted reports that the instance was terminated because its revision was not wanted.
	Unwanted bool `json:",omitzero"`
}

// NotesAtStart returns an instance's first notes, which are saved before its process runs.
func NotesAtStart(c *v1.Container) Notes {
	return Notes{PostStartDue: c.Lifecycle != nil && c.Lifecycle.PostStart != nil}
}
