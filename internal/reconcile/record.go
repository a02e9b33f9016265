package reconcile

import (
	"errors"
	"fmt"
	"strings"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// recordedEvents is what a worker has already recorded as events or logged, and does not repeat
// while it is unchanged.
type recordedEvents struct {
	problem, failure, pending, outdated, unheard string
	// resizing reports that a resize of running instances is in progress.
	resizing bool
	// waiting is the attempt that waits in back-off, by container.
	waiting map[string]string
}

const (
	normal  = false
	warning = true
)

// record records an event of a container. "" is the pod as a whole, also used for the images of
// volumes.
func (w *worker) record(container string, warning bool, reason, message string) {
	if strings.HasPrefix(container, imageOf("")) {
		container = ""
	}
	e := pod.Event{Key: w.key, Container: container, Warning: warning, Reason: reason, Message: message}
	if w.state.pod != nil {
		e.UID = w.state.pod.UID
	}
	w.o.Events.Record(e)
}

// recordFailure records an attempt that created no instance, under the kubelet's reason.
func (w *worker) recordFailure(name, reason string, err error) {
	switch reason {
	case plan.ReasonErrImagePull:
		if of := volumeError(""); errors.As(err, &of) {
			w.record(name, warning, "Failed", "Error: "+err.Error())
		} else if c := container(w.state.pod, name); c != nil {
			w.record(name, warning, "Failed", fmt.Sprintf("Failed to pull image %q: %v", c.Image, err))
		}
	case reasonConfig, "CreateContainerError":
		w.record(name, warning, "Failed", "Error: "+err.Error())
	case runtime.ReasonFailedMount:
		w.record("", warning, reason, err.Error())
	case reasonResize:
		if w.failures[name].Count == 1 { // retried all the time: record it once
			w.record("", warning, reason, "Pod resize error: "+err.Error())
		}
	default:
		if container(w.state.pod, name) == nil {
			name = "" // the sandbox
		}
		w.record(name, warning, reason, err.Error())
	}
}

func (w *worker) recordStop(container, why string) {
	w.record(container, normal, "Killing", fmt.Sprintf("Stopping container %s: %s", container, why))
}

// recordOutdated records why the volumes of a running pod are outdated; nil: they are not. The
// update is tried every second, so the same error is recorded once.
func (w *worker) recordOutdated(err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	if why != "" && why != w.recorded.outdated {
		w.log.Warn("volumes of the running pod are not up to date", "err", why)
		w.record("", warning, runtime.ReasonFailedMount, "not up to date: "+why)
	}
	w.recorded.outdated = why
}

// recordManifest records that the pod's manifest has become invalid.
func (w *worker) recordManifest() {
	if w.state.pod != nil && w.state.problem != "" && w.state.problem != w.recorded.problem {
		w.record("", warning, "FailedValidation", w.state.problem)
	}
	w.recorded.problem = w.state.problem
}

// recordPlan records what the pod starts to wait for: each back-off, and what delays or ends the
// pod as a whole.
func (w *worker) recordPlan(seen pod.Observed, p plan.Plan) {
	if w.state.pod == nil {
		return
	}
	failure := ""
	if f := p.Failure; f != nil {
		failure = f.Reason + f.Message
		if failure != w.recorded.failure {
			w.record("", f.Reason != plan.ReasonWaitingForPods, f.Reason, f.Message)
		}
	}
	w.recorded.failure = failure
	w.recordResize(p)
	for name, waiting := range p.Waiting {
		if waiting.Reason != "CrashLoopBackOff" && waiting.Reason != plan.ReasonImagePullBackOff {
			continue
		}
		last, _, _ := seen.Last(w.state.pod.UID, name)
		attempt := fmt.Sprint(last.ID, w.failures[name].Count)
		if w.recorded.waiting[name] == attempt {
			continue
		}
		if w.recorded.waiting == nil {
			w.recorded.waiting = map[string]string{}
		}
		w.recorded.waiting[name] = attempt
		message := "Back-off restarting failed container " + name
		if waiting.Reason == plan.ReasonImagePullBackOff {
			message = fmt.Sprintf("Back-off pulling image %q", container(w.state.pod, name).Image)
		}
		w.record(name, warning, "BackOff", message)
	}
}
