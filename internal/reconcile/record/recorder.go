// Package record is where a worker reports what happens to its pod: as events ([Recorder]), as failed
// attempts that the planner backs off from ([Failures]), and as syncs that failed as a whole
// ([Syncs]). It repeats no event or message while nothing changes, and decides nothing.
//
// Begin reading with Recorder.
package record

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile/revision"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/sys/errtext"
)

// Events receives the events that Recorder records; event.Recorder implements it. Record does not
// block.
type Events interface{ Record(e pod.Event) }

// Recorder records the events of one pod in Events. It remembers what it has already recorded or
// logged, and does not repeat that while it is unchanged.
type Recorder struct {
	events Events
	key    pod.Key
	pod    *v1.Pod // the chosen revision; nil if there is none
	log    *slog.Logger

	problem, failure, pending string
	outdated                  error
	// resizing reports that a resize of running instances is in progress.
	resizing bool
	// waiting is the attempt that waits in back-off, by container.
	waiting map[string]string
}

// Whether an event is a problem: values of Record's warning.
const (
	Normal  = false
	Warning = true
)

// ReasonPulling is the reason in the status of a container that waits for the pull of an image that
// is one of its volumes.
const ReasonPulling = "ContainerCreating"

// ReasonResize is the kubelet's reason for a failed resize.
const ReasonResize = "ResizeError"

// VolumeImage is the key of a volume's image, where other keys are names of containers: no container
// can have this name.
func VolumeImage(volume string) string { return "volume/" + volume }

// VolumeError says why a volume's image is missing, where the reason alone would mean the
// container's own image.
type VolumeError string

func (e VolumeError) Error() string { return string(e) }

// NewRecorder returns a recorder of the events of the pod key.
func NewRecorder(events Events, key pod.Key, log *slog.Logger) *Recorder {
	return &Recorder{events: events, key: key, log: log}
}

// Record records an event of a container. "" is the pod as a whole, also used for the images of
// volumes.
func (r *Recorder) Record(container string, warning bool, reason, message string) {
	if strings.HasPrefix(container, VolumeImage("")) {
		container = ""
	}
	e := pod.Event{
		Key: r.key, Container: container, Init: pod.IsInit(r.pod, container),
		Warning: warning, Reason: reason, Message: message,
	}
	if r.pod != nil {
		e.UID = r.pod.UID
	}
	r.events.Record(e)
}

// Failure records an attempt that created no instance of a container of p, under the
// kubelet's reason.
func (r *Recorder) Failure(p *v1.Pod, name string, f plan.Failure, err error) {
	switch f.Reason {
	case plan.ReasonErrImagePull:
		if of := VolumeError(""); errors.As(err, &of) {
			r.Record(name, Warning, "Failed", "Error: "+err.Error())
		} else if c := pod.FindContainer(p, name); c != nil {
			r.Record(name, Warning, "Failed", fmt.Sprintf("Failed to pull image %q: %v", c.Image, err))
		}
	case runtime.ReasonConfig, runtime.ReasonCreate:
		r.Record(name, Warning, "Failed", "Error: "+err.Error())
	case pod.ReasonFailedMount:
		r.Record("", Warning, f.Reason, err.Error())
	case ReasonResize:
		if f.Count == 1 { // retried all the time: record it once
			r.Record("", Warning, f.Reason, "Pod resize error: "+err.Error())
		}
	default:
		if pod.FindContainer(p, name) == nil {
			name = "" // the sandbox
		}
		r.Record(name, Warning, f.Reason, err.Error())
	}
}

// Stop records that the termination of an instance begins, and why.
func (r *Recorder) Stop(container, why string) {
	r.Record(container, Normal, "Killing", fmt.Sprintf("Stopping container %s: %s", container, why))
}

// Outdated records why the volumes of a running pod are outdated; nil: they are not. The
// update is tried every second, so the same error is recorded once.
func (r *Recorder) Outdated(err error) {
	if err != nil && !errtext.Same(err, r.outdated) {
		r.log.Warn("volumes of the running pod are not up to date", "err", err)
		r.Record("", Warning, pod.ReasonFailedMount, "not up to date: "+err.Error())
	}
	r.outdated = err
}

// Manifest records that the manifest of a newly chosen revision has become invalid.
func (r *Recorder) Manifest(s revision.State) {
	r.pod = s.Pod
	if s.Pod != nil && s.Problem != "" && s.Problem != r.problem {
		r.Record("", Warning, "FailedValidation", s.Problem)
	}
	r.problem = s.Problem
}

// Plan records what pod p starts to wait for: each back-off, and what delays or ends the pod
// as a whole. attempts are the failures that the plan was made with.
func (r *Recorder) Plan(p *v1.Pod, seen pod.Observed, next plan.Plan, attempts map[string]plan.Failure) {
	if p == nil {
		return
	}
	failure := ""
	if f := next.Failure; f != nil {
		failure = f.Reason + f.Message
		if failure != r.failure {
			r.Record("", f.Reason != plan.ReasonWaitingForPods, f.Reason, f.Message)
		}
	}
	r.failure = failure
	r.recordResize(p, next)
	for name, waiting := range next.Waiting {
		if waiting.Reason != plan.ReasonCrashLoopBackOff && waiting.Reason != plan.ReasonImagePullBackOff {
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
			message = fmt.Sprintf("Back-off pulling image %q", pod.FindContainer(p, name).Image)
		}
		r.Record(name, Warning, "BackOff", message)
	}
}

// ResizeStarted records that p has been allocated other CPU and memory.
func (r *Recorder) ResizeStarted(p *v1.Pod) {
	r.resizing = true
	r.Record("", Normal, "ResizeStarted", "Pod resize started: "+pod.SizeOf(p))
}

// recordResize records the progress of a resize of p, under the kubelet's reasons.
func (r *Recorder) recordResize(p *v1.Pod, next plan.Plan) {
	pending := ""
	if why := next.ResizePending; why != nil {
		pending = why.Reason + why.Message
		if pending != r.pending {
			r.Record("", Warning, "Resize"+why.Reason, fmt.Sprintf("Pod resize %s: %s", why.Reason, why.Message))
		}
	}
	r.pending = pending
	superseded := slices.ContainsFunc(next.Actions, func(a plan.Action) bool { _, is := a.(plan.Allocate); return is })
	if next.Resizing == nil && r.resizing && !superseded {
		r.Record("", Normal, "ResizeCompleted", "Pod resize completed: "+pod.SizeOf(p))
	}
	r.resizing = next.Resizing != nil || r.resizing && superseded
}
