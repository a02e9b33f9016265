package reconcile

import (
	"errors"
	"fmt"
	"strings"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// told is what a worker has made events of or logged, and does not say again while it is so.
type told struct {
	problem, failure, pending, outdated, unheard string
	// resizing: what runs is being brought to another size.
	resizing bool
	// waiting has, by container, the attempt that waits.
	waiting map[string]string
}

const (
	normal  = false
	warning = true
)

// tell records what happened to a container; "" is the pod as a whole, whose the images of volumes are too.
func (w *worker) tell(container string, warning bool, reason, message string) {
	if strings.HasPrefix(container, imageOf("")) {
		container = ""
	}
	e := pod.Event{Key: w.key, Container: container, Warning: warning, Reason: reason, Message: message}
	if w.pod != nil {
		e.UID = w.pod.UID
	}
	w.o.Events.Record(e)
}

// tellFailure records an attempt that made nothing, under the kubelet's reason.
func (w *worker) tellFailure(container, reason string, err error) {
	switch reason {
	case plan.ReasonErrImagePull:
		if of := volumeError(""); errors.As(err, &of) {
			w.tell(container, warning, "Failed", "Error: "+err.Error())
		} else if c := w.container(container); c != nil {
			w.tell(container, warning, "Failed", fmt.Sprintf("Failed to pull image %q: %v", c.Image, err))
		}
	case reasonConfig, "CreateContainerError":
		w.tell(container, warning, "Failed", "Error: "+err.Error())
	case runtime.ReasonFailedMount:
		w.tell("", warning, reason, err.Error())
	case reasonResize:
		if w.failures[container].Count == 1 { // it is tried again and again
			w.tell("", warning, reason, "Pod resize error: "+err.Error())
		}
	default:
		if w.container(container) == nil {
			container = "" // the sandbox
		}
		w.tell(container, warning, reason, err.Error())
	}
}

func (w *worker) tellStop(container, why string) {
	w.tell(container, normal, "Killing", fmt.Sprintf("Stopping container %s: %s", container, why))
}

// tellOutdated records why volumes of what runs show what was before; nil: they do not. It is tried every second.
func (w *worker) tellOutdated(err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	if why != "" && why != w.told.outdated {
		w.log.Warn("a running pod's volumes are not up to date", "why", why)
		w.tell("", warning, runtime.ReasonFailedMount, "not up to date: "+why)
	}
	w.told.outdated = why
}

// tellManifest records that the pod's manifest has turned bad.
func (w *worker) tellManifest() {
	if w.pod != nil && w.problem != "" && w.problem != w.told.problem {
		w.tell("", warning, "FailedValidation", w.problem)
	}
	w.told.problem = w.problem
}

// tellPlan records what the pod comes to wait for: each back-off, and what keeps or ends it as a whole.
func (w *worker) tellPlan(seen pod.Observed, p plan.Plan) {
	if w.pod == nil {
		return
	}
	failure := ""
	if f := p.Failure; f != nil {
		failure = f.Reason + f.Message
		if failure != w.told.failure {
			w.tell("", f.Reason != plan.ReasonWaitingForPods, f.Reason, f.Message)
		}
	}
	w.told.failure = failure
	w.tellResize(p)
	for name, waiting := range p.Waiting {
		if waiting.Reason != "CrashLoopBackOff" && waiting.Reason != plan.ReasonImagePullBackOff {
			continue
		}
		last, _, _ := seen.Last(w.pod.UID, name)
		attempt := fmt.Sprint(last.ID, w.failures[name].Count)
		if w.told.waiting[name] == attempt {
			continue
		}
		if w.told.waiting == nil {
			w.told.waiting = map[string]string{}
		}
		w.told.waiting[name] = attempt
		message := "Back-off restarting failed container " + name
		if waiting.Reason == plan.ReasonImagePullBackOff {
			message = fmt.Sprintf("Back-off pulling image %q", w.container(name).Image)
		}
		w.tell(name, warning, "BackOff", message)
	}
}
