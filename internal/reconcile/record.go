package reconcile

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/sys/errtext"
)

// recorder records the events of one pod. It remembers what it has already recorded or logged, and
// does not repeat that while it is unchanged.
type recorder struct {
	events Recorder
	key    pod.Key
	uid    pod.UID // of the chosen revision
	log    *slog.Logger

	problem, failure, pending string
	outdated                  error
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
func (r *recorder) record(container string, warning bool, reason, message string) {
	if strings.HasPrefix(container, imageOf("")) {
		container = ""
	}
	r.events.Record(pod.Event{
		Key: r.key, UID: r.uid, Container: container, Warning: warning, Reason: reason, Message: message,
	})
}

// recordFailure records an attempt that created no instance of a container of p, under the
// kubelet's reason.
func (r *recorder) recordFailure(p *v1.Pod, name string, f plan.Failure, err error) {
	switch f.Reason {
	case plan.ReasonErrImagePull:
		if of := volumeError(""); errors.As(err, &of) {
			r.record(name, warning, "Failed", "Error: "+err.Error())
		} else if c := container(p, name); c != nil {
			r.record(name, warning, "Failed", fmt.Sprintf("Failed to pull image %q: %v", c.Image, err))
		}
	case reasonConfig, "CreateContainerError":
		r.record(name, warning, "Failed", "Error: "+err.Error())
	case runtime.ReasonFailedMount:
		r.record("", warning, f.Reason, err.Error())
	case reasonResize:
		if f.Count == 1 { // retried all the time: record it once
			r.record("", warning, f.Reason, "Pod resize error: "+err.Error())
		}
	default:
		if container(p, name) == nil {
			name = "" // the sandbox
		}
		r.record(name, warning, f.Reason, err.Error())
	}
}

func (r *recorder) recordStop(container, why string) {
	r.record(container, normal, "Killing", fmt.Sprintf("Stopping container %s: %s", container, why))
}

// recordOutdated records why the volumes of a running pod are outdated; nil: they are not. The
// update is tried every second, so the same error is recorded once.
func (r *recorder) recordOutdated(err error) {
	if err != nil && !errtext.Same(err, r.outdated) {
		r.log.Warn("volumes of the running pod are not up to date", "err", err)
		r.record("", warning, runtime.ReasonFailedMount, "not up to date: "+err.Error())
	}
	r.outdated = err
}

// recordManifest records that the manifest of a newly chosen revision has become invalid.
func (r *recorder) recordManifest(s state) {
	r.uid = ""
	if s.pod != nil {
		r.uid = s.pod.UID
	}
	if s.pod != nil && s.problem != "" && s.problem != r.problem {
		r.record("", warning, "FailedValidation", s.problem)
	}
	r.problem = s.problem
}

// recordPlan records what pod p starts to wait for: each back-off, and what delays or ends the pod
// as a whole. attempts are the failures that the plan was made with.
func (r *recorder) recordPlan(p *v1.Pod, seen pod.Observed, next plan.Plan, attempts map[string]plan.Failure) {
	if p == nil {
		return
	}
	failure := ""
	if f := next.Failure; f != nil {
		failure = f.Reason + f.Message
		if failure != r.failure {
			r.record("", f.Reason != plan.ReasonWaitingForPods, f.Reason, f.Message)
		}
	}
	r.failure = failure
	r.recordResize(p, next)
	for name, waiting := range next.Waiting {
		if waiting.Reason != "CrashLoopBackOff" && waiting.Reason != plan.ReasonImagePullBackOff {
			continue
		}
		last, _, _ := seen.Last(p.UID, name)
		attempt := fmt.Sprint(last.ID, attempts[name].Count)
		if r.waiting[name] == attempt {
			continue
		}
		if r.waiting == nil {
			r.waiting = map[string]string{}
		}
		r.waiting[name] = attempt
		message := "Back-off restarting failed container " + name
		if waiting.Reason == plan.ReasonImagePullBackOff {
			message = fmt.Sprintf("Back-off pulling image %q", container(p, name).Image)
		}
		r.record(name, warning, "BackOff", message)
	}
}

// recordResize records the progress of a resize of p, under the kubelet's reasons.
func (r *recorder) recordResize(p *v1.Pod, next plan.Plan) {
	pending := ""
	if why := next.ResizePending; why != nil {
		pending = why.Reason + why.Message
		if pending != r.pending {
			r.record("", warning, "Resize"+why.Reason, fmt.Sprintf("Pod resize %s: %s", why.Reason, why.Message))
		}
	}
	r.pending = pending
	if next.Resizing == nil && r.resizing {
		r.record("", normal, "ResizeCompleted", "Pod resize completed: "+pod.SizeOf(p))
	}
	r.resizing = next.Resizing != nil
}
