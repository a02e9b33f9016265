package record

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// Failures are the last attempts of a pod that created nothing, for the planner's back-off.
type Failures struct {
	// Last has the attempts by the keys of plan.Input.Failures, and by VolumeImage.
	Last     map[string]plan.Failure
	recorder *Recorder
	stuck    func(why error)
	log      *slog.Logger
}

// NewFailures returns no failures. stuck is called with each one that is a runtime.PermanentError, and by Never; it
// may be nil.
func NewFailures(recorder *Recorder, stuck func(why error), log *slog.Logger) *Failures {
	return &Failures{Last: map[string]plan.Failure{}, recorder: recorder, stuck: stuck, log: log}
}

// reportStuck reports a failure that no later attempt mends.
func (f *Failures) reportStuck(name, reason string, err error) {
	var permanent *runtime.PermanentError
	if f.stuck == nil || !errors.As(err, &permanent) {
		return
	}
	if strings.HasPrefix(name, VolumeImage("")) || name == "" || name == plan.FailureMount {
		f.stuck(fmt.Errorf("%s: %w", reason, err))
		return
	}
	f.stuck(fmt.Errorf("container %s: %s: %w", name, reason, err))
}

// Never reports why the pod can never start on this machine; nil if it can.
func (f *Failures) Never(why *plan.Waiting) {
	if why == nil {
		return
	}
	fix := "request less, or run it on a machine that has more"
	switch {
	case pod.IsDevice(why.Lacks()):
		fix = "run the pod under podrun serve with --plugins, or name the devices in --node-config"
	case why.Reason == plan.ReasonNodeAffinity:
		fix = "change nodeSelector or the node affinity, or give the node the labels with --node-labels"
	}
	f.reportStuck("", why.Reason, &runtime.PermanentError{Fix: fix, Err: errors.New(why.Message)})
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
		if p.Spec.RestartPolicy != v1.RestartPolicyNever { // such a pod has failed by itself
			f.reportStuck(name, "StartError", err)
		}
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
	f.reportStuck(name, reason, err)
	f.log.Warn("pod action failed; retrying", "container", strings.TrimSpace(name), "reason", reason, "err", err)
	return nil
}

// Forget clears the failures that the container may wait for, so that these are tried again at once: its own, those of
// volumes and their images and that of the sandbox.
func (f *Failures) Forget(container string) {
	for name := range f.Last {
		if name == "" || name == plan.FailureMount || name == container || strings.HasPrefix(name, VolumeImage("")) {
			delete(f.Last, name)
		}
	}
}

// Retry clears the failures with one of reasons, so that these are tried again at once.
func (f *Failures) Retry(reasons ...string) {
	for name, last := range f.Last {
		if slices.Contains(reasons, last.Reason) {
			delete(f.Last, name)
		}
	}
}
