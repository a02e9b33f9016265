package record

import (
	"errors"
	"log/slog"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/runtime"
)

// Failures are the last attempts of a pod that created nothing, for the planner's back-off.
type Failures struct {
	// Last has the attempts by the keys of plan.Input.Failures, and by VolumeImage.
	Last     map[string]plan.Failure
	recorder *Recorder
	log      *slog.Logger
}

// NewFailures returns no failures.
func NewFailures(recorder *Recorder, log *slog.Logger) *Failures {
	return &Failures{Last: map[string]plan.Failure{}, recorder: recorder, log: log}
}

// Keep records a failure under the name of a container of p ("" is the sandbox). A nil err clears
// it. It returns an error, which ends the sync, only if the runtime is unavailable: then no other
// action would succeed either.
func (f *Failures) Keep(p *v1.Pod, name, reason string, err error) error {
	var start *runtime.StartError
	var why *runtime.ReasonError
	switch {
	case err == nil:
		delete(f.Last, name)
		return nil
	case errors.Is(err, runtime.ErrUnavailable):
		return err
	case errors.As(err, &start):
		// The instance exists, and its status shows why it exited.
		f.recorder.Record(name, Warning, "Failed", "Error: "+err.Error())
		f.log.Warn("container failed to start", "container", name, "err", err)
		delete(f.Last, name)
		return nil
	case errors.As(err, &why):
		reason = why.Reason
	}
	last := f.Last[name]
	if last.Reason != reason {
		last.Count = 0
	}
	last = plan.Failure{Reason: reason, Message: err.Error(), At: time.Now(), Count: last.Count + 1}
	f.Last[name] = last
	if reason == ReasonPulling {
		return nil // not a failure: the pull is in progress
	}
	f.recorder.Failure(p, name, last, err)
	f.log.Warn("pod action failed; retrying", "container", name, "reason", reason, "err", err)
	return nil
}

// Retry clears the failures with one of reasons, so that these are tried again at once.
func (f *Failures) Retry(reasons ...string) {
	for name, last := range f.Last {
		if slices.Contains(reasons, last.Reason) {
			delete(f.Last, name)
		}
	}
}
