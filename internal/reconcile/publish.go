package reconcile

import (
	"log/slog"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile/admission"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/status"
	"podrun.io/podrun/internal/sys/errtext"
)

// statusPublisher publishes the status of one pod.
type statusPublisher struct {
	key       pod.Key
	publisher Publisher
	data      runtime.Data
	order     *admission.Order
	hooks     *hookRunner
	manifests *manifests
	hostIP    string
	log       *slog.Logger

	shown       *v1.Pod           // what the last published status was made of
	completed   bool              // the pod was published as completed
	leaving     bool              // the pod was published as being terminated for good
	ready       map[string]bool   // readiness by instance ID, as published with leaving
	before      []v1.PodCondition // the conditions published last
	unpublished bool              // the last status could not be published
	logged      error             // the last error that was logged
}

// publish publishes the pod's status. resting reports that nothing happens to the pod for now,
// possibly because an action failed. A pod that is being terminated for good keeps its last status
// until it is gone, except for the results of its readiness probes.
func (u *statusPublisher) publish(s state, seen pod.Observed, p plan.Plan, resting bool) {
	var err error
	switch {
	case p.Gone:
		u.shown, u.before = nil, nil
		u.order.Report(u.key, false)
		err = u.publisher.Gone(u.key)
	case s.pod == nil && (len(p.Actions) > 0 || u.hooks.results.instances.ending(seen)):
		if u.shown == nil {
			u.publishLast(seen, p)
		}
		if ready := u.hooks.ready(seen); !u.leaving || !maps.Equal(ready, u.ready) {
			err = u.publisher.Leaving(u.key, time.Now(), ready)
			u.leaving, u.ready = err == nil, ready
		}
	case s.pod != nil && (resting || u.shown != s.pod || p.Completed && !u.completed):
		// Publish only states of rest: each intermediate state would cost a file. A result is
		// published at once, because the remaining actions may take long.
		err = u.publishPod(s, seen, p)
	}
	if u.unpublished = err != nil; !u.unpublished {
		u.logged = nil
	} else if !errtext.Same(err, u.logged) { // retried every second: log it once
		u.logged = err
		u.log.Error("pod status not written; retrying", "err", err)
	}
}

// publishPod publishes the status of a pod that is desired.
func (u *statusPublisher) publishPod(s state, seen pod.Observed, p plan.Plan) error {
	if u.shown != nil && u.shown.UID != s.pod.UID {
		u.before = nil
	}
	u.loadConditions(s.pod.UID)
	u.shown, u.leaving, u.completed = s.pod, false, p.Completed
	out := s.pod.DeepCopy()
	if s.resized != nil {
		out = pod.Sized(s.pod, s.resized) // the manifest's resources; the status has the allocated ones
	}
	if s.problem != "" {
		manifest.Annotate(out, manifest.AnnotationError, s.problem)
	}
	if !p.Next.IsZero() {
		manifest.Annotate(out, manifest.AnnotationNext, p.Next.UTC().Format(time.RFC3339))
	}
	out.Status = u.status(s.pod, seen, p, u.before)
	u.saveConditions(s.pod.UID, out.Status.Conditions)
	u.order.Report(u.key, !p.Again && pod.Arrived(out))
	return u.publisher.Publish(out, len(p.Actions) == 0)
}

// publishLast publishes the last status of a pod that an earlier podrun process ran and that is
// being terminated now.
func (u *statusPublisher) publishLast(seen pod.Observed, p plan.Plan) {
	last := u.manifests.running(nil, seen)
	if last == nil {
		return // its manifest is not known
	}
	u.shown = last
	out := last.DeepCopy()
	before, _ := u.data.LoadConditions(last.UID) // without them only the transition times differ
	out.Status = u.status(last, seen, p, before)
	if err := u.publisher.Publish(out, false); err != nil {
		u.log.Warn("pod status not written", "err", err)
	}
}

// status returns p's status. before are the conditions that were published last.
func (u *statusPublisher) status(p *v1.Pod, seen pod.Observed, next plan.Plan, before []v1.PodCondition) v1.PodStatus {
	return status.Of(status.Input{
		Pod:      p,
		Observed: seen,
		Plan:     next,
		Probed:   u.hooks.results.of(seen),
		HostIP:   u.hostIP,
		Before:   before,
		Now:      time.Now(),
	})
}

// rename records that a pod whose status is published goes on under the manifest to. So the same
// status is not published again.
func (u *statusPublisher) rename(from, to *v1.Pod) {
	if u.shown == from {
		u.shown = to
	}
}

// loadConditions loads the conditions that an earlier podrun process published, so that the new
// ones keep their transition times.
func (u *statusPublisher) loadConditions(uid pod.UID) {
	if u.before != nil {
		return
	}
	var err error
	if u.before, err = u.data.LoadConditions(uid); err != nil {
		u.log.Warn("loading the pod's conditions failed; their transition times may be too late", "err", err)
	}
}

// saveConditions saves the published conditions.
func (u *statusPublisher) saveConditions(uid pod.UID, now []v1.PodCondition) {
	if !equality.Semantic.DeepEqual(u.before, now) {
		if err := u.data.SaveConditions(uid, now); err != nil {
			u.log.Debug("saving the pod's conditions failed", "err", err)
		}
	}
	u.before = now
}
