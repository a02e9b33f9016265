// Package publish publishes the status of one pod when that has changed, and saves the pod's
// conditions, so that they keep their transition times. The status is computed by package status,
// and shown by the [Publisher], which for serve is status.Files. Nothing is read back from what was
// published.
//
// Begin reading with Status.Publish.
package publish

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile/admission"
	"podrun.io/podrun/internal/reconcile/lifecycle"
	"podrun.io/podrun/internal/reconcile/revision"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/status"
	"podrun.io/podrun/internal/sys/errtext"
	"podrun.io/podrun/internal/timeline"
)

// Publisher publishes the status of pods. Its methods must not block for long.
type Publisher interface {
	// Publish publishes a pod with its status. A pod that is being terminated for good has a
	// deletion timestamp. seen is when the pod was observed, which may be long ago while an action
	// hangs; zero if it is not known. settled reports that the plan has no actions left for the pod.
	Publish(p *v1.Pod, seen time.Time, settled bool) error
	// Gone publishes that nothing is left of a pod.
	Gone(key pod.Key) error
}

// Status publishes the status of one pod.
type Status struct {
	o Options

	shown       *v1.Pod           // what the last published status was made of
	completed   bool              // the pod was published as completed
	leaving     time.Time         // when the pod was first published as being terminated for good; zero if it was not
	ready       map[string]bool   // results of the probes that go on while the pod leaves, by instance ID
	wasReady    map[string]bool   // readiness by instance ID, as published last
	ran         []string          // the IDs of the instances that were published last as running
	before      []v1.PodCondition // the conditions published last
	unpublished bool              // the last status could not be published
	logged      error             // the last error that was logged
}

// Options configure the Status of one pod.
type Options struct {
	Key       pod.Key
	Publisher Publisher
	Data      runtime.Data
	Order     *admission.Order
	Lifecycle *lifecycle.Lifecycle
	Manifests *revision.Manifests
	// Devices are those of plugins. May be nil.
	Devices admission.Devices
	// Timeline receives each status too. May be nil.
	Timeline *timeline.Recorder
	// HostIP returns the node's address in pod statuses.
	HostIP func() string
	Log    *slog.Logger
}

// New returns the Status of a pod of which nothing has been published.
func New(o Options) *Status { return &Status{o: o} }

// Unpublished reports that the last status could not be published.
func (u *Status) Unpublished() bool { return u.unpublished }

// Forget forgets what was published: another process may have published since.
func (u *Status) Forget() { u.shown, u.before, u.leaving = nil, nil, time.Time{} }

// ForgetConditions forgets the conditions that were published: they belong to another pod.
func (u *Status) ForgetConditions() { u.before = nil }

// Publish publishes the pod's status. resting reports that the worker does nothing until it is
// woken: the pod is settled, or an action has failed with the error failure.
func (u *Status) Publish(s revision.State, seen pod.Observed, p plan.Plan, resting bool, failure error) {
	var err error
	switch {
	case p.Gone:
		u.Forget()
		u.o.Order.Report(u.o.Key, false)
		u.o.Timeline.Gone(u.o.Key, time.Now())
		err = u.o.Publisher.Gone(u.o.Key)
	case s.Pod == nil && (len(p.Actions) > 0 || u.o.Lifecycle.Instances.Ending(seen)):
		if ready := u.o.Lifecycle.Hooks.Ready(seen); u.leaving.IsZero() || resting || !maps.Equal(ready, u.ready) {
			u.ready = ready
			err = u.publishLeaving(seen, p, failure)
		}
	case s.Pod != nil && !resting && (p.Completed || u.shown == s.Pod) && slices.ContainsFunc(p.Actions, recordsExit):
		return // an exit that was reported must outlive a power cut: it is recorded first
	case s.Pod != nil && (resting || u.shown != s.Pod || p.Completed && !u.completed || u.hasEnded(seen)):
		// Publish only states of rest: each intermediate state would cost a file. A result, and that an instance
		// does not run any more, are published at once, because the remaining actions may take long.
		err = u.publishPod(s, seen, p, failure)
	default:
		return
	}
	if u.unpublished = err != nil; !u.unpublished {
		u.logged = nil
	} else if !errtext.Same(err, u.logged) { // retried every second: log it once
		u.logged = err
		u.o.Log.Error("pod status not written; retrying", "err", err)
	}
}

// hasEnded reports whether an instance that was published as running does not run any more.
func (u *Status) hasEnded(seen pod.Observed) bool {
	return slices.ContainsFunc(u.ran, func(id string) bool {
		return !slices.ContainsFunc(seen.Containers, func(c pod.Container) bool {
			return c.ID == id && c.State == pod.Running
		})
	})
}

func recordsExit(a plan.Action) bool { _, reap := a.(plan.Reap); return reap }

// publishPod publishes the status of a pod that is desired. A container that waits for no reason of its
// own waits because of failure, for example until what is left of the pod's former run can be removed.
func (u *Status) publishPod(s revision.State, seen pod.Observed, p plan.Plan, failure error) error {
	if u.shown != nil && u.shown.UID != s.Pod.UID {
		u.before = nil
	}
	u.loadConditions(s.Pod.UID)
	u.shown, u.leaving, u.completed = s.Pod, time.Time{}, p.Completed
	shown := s.Pod
	if s.Resized != nil {
		shown = pod.Sized(s.Pod, s.Resized) // the manifest's resources; the status has the allocated ones
	}
	out := new(*shown) // of which nothing is modified but what is set here
	out.Annotations = maps.Clone(shown.Annotations)
	if s.Problem != "" {
		manifest.Annotate(out, manifest.AnnotationError, s.Problem)
	}
	if !p.Next.IsZero() {
		manifest.Annotate(out, manifest.AnnotationNext, p.Next.UTC().Format(time.RFC3339))
	}
	out.Status = u.status(s.Pod, seen, p, u.before, nil)
	u.saveConditions(s.Pod.UID, out.Status.Conditions)
	if failure != nil {
		explain(out.Status.InitContainerStatuses, failure)
		explain(out.Status.ContainerStatuses, failure)
	}
	u.o.Timeline.Observe(out, seen.Containers, time.Now())
	u.o.Order.Report(u.o.Key, !p.Again && pod.Arrived(out))
	return u.o.Publisher.Publish(out, seen.At, len(p.Actions) == 0)
}

func explain(all []v1.ContainerStatus, failure error) {
	for i := range all {
		if w := all[i].State.Waiting; w != nil && w.Message == "" {
			w.Message = failure.Error()
		}
	}
}

// publishLeaving publishes the status of a pod that is being terminated for good. Like a pod that was
// deleted from an API server, it has the time at which its grace period ends. failure is why it is
// not terminated yet, or nil.
func (u *Status) publishLeaving(seen pod.Observed, p plan.Plan, failure error) error {
	if u.shown == nil { // an earlier podrun process ran it
		if u.shown = u.o.Manifests.Running(nil, seen); u.shown == nil {
			return nil // its manifest is not known
		}
	}
	u.loadConditions(u.shown.UID)
	if u.leaving.IsZero() {
		u.leaving = asked(seen, time.Now())
	}
	out := new(*u.shown) // of which nothing is modified but what is set here
	grace := int64(v1.DefaultTerminationGracePeriodSeconds)
	if given := out.Spec.TerminationGracePeriodSeconds; given != nil {
		grace = *given
	}
	out.DeletionGracePeriodSeconds = &grace
	out.DeletionTimestamp = &metav1.Time{Time: u.leaving.Add(pod.Seconds(grace))}
	out.Status = u.status(u.shown, seen, p, u.before, u.readiness(seen))
	if failure != nil {
		if out.Status.Reason == "" {
			out.Status.Reason = pod.ReasonKillPod
		}
		out.Status.Message = failure.Error()
	}
	u.saveConditions(u.shown.UID, out.Status.Conditions)
	return u.o.Publisher.Publish(out, seen.At, false)
}

// asked returns when the first running instance was asked to exit, or now if none was: an earlier podrun
// process may have begun to terminate the pod.
func asked(seen pod.Observed, now time.Time) time.Time {
	for _, c := range seen.Containers {
		if at := c.Notes.Signals.Asked; c.State == pod.Running && !at.IsZero() && at.Before(now) {
			now = at
		}
	}
	return now
}

// status returns p's status. before are the conditions that were published last.
// ready is the readiness of instances that are being terminated for good.
func (u *Status) status(
	p *v1.Pod, seen pod.Observed, next plan.Plan, before []v1.PodCondition, ready map[string]bool,
) v1.PodStatus {
	now := status.Of(status.Input{
		Pod:      p,
		Observed: seen,
		Plan:     next,
		Probed:   u.o.Lifecycle.Results.Of(seen),
		Ready:    ready,
		HostIP:   u.o.HostIP(),
		Before:   before,
		Now:      time.Now(),
	})
	u.addDevices(&now, p, seen)
	u.wasReady, u.ran = map[string]bool{}, nil
	for _, c := range slices.Concat(now.InitContainerStatuses, now.ContainerStatuses) {
		id := pod.IDOf(c.ContainerID)
		if u.wasReady[id] = c.Ready; c.State.Running != nil {
			u.ran = append(u.ran, id)
		}
	}
	return now
}

// addDevices adds the health of the containers' devices to the pod's status.
func (u *Status) addDevices(s *v1.PodStatus, p *v1.Pod, seen pod.Observed) {
	if u.o.Devices == nil {
		return
	}
	mine, _ := seen.Split(p.UID)
	for _, sandbox := range mine.Sandboxes {
		health := u.o.Devices.Health(sandbox.ID, p)
		if len(health) == 0 {
			continue
		}
		for _, of := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
			for i := range of {
				of[i].AllocatedResourcesStatus = health[of[i].Name]
			}
		}
		return // the sandbox that containers are started in
	}
}

// readiness returns the readiness of the instances of a pod that is being terminated for good: the results
// of probes that go on (u.ready), else as it was published last. The manifest shown need not be the one that an
// instance was started with, so it does not tell which probes an instance has.
func (u *Status) readiness(seen pod.Observed) map[string]bool {
	ready := maps.Clone(u.ready)
	for _, c := range seen.Containers {
		if _, known := ready[c.ID]; !known {
			ready[c.ID] = u.wasReady[c.ID]
		}
	}
	return ready
}

// Rename records that the pod whose status was published as from has the manifest to from now on
// (execute.Options.Renamed). So the same status is not published again.
func (u *Status) Rename(from, to *v1.Pod) {
	if u.shown == from {
		u.shown = to
		if from.Annotations[manifest.AnnotationSeen] != to.Annotations[manifest.AnnotationSeen] {
			u.before = nil // the conditions of a former run
		}
	}
}

// loadConditions loads the conditions that an earlier podrun process published, so that the new
// ones keep their transition times.
func (u *Status) loadConditions(uid pod.UID) {
	if u.before != nil {
		return
	}
	var err error
	if u.before, err = u.o.Data.LoadConditions(uid); err != nil {
		u.o.Log.Warn("loading the pod's conditions failed; their transition times may be too late", "err", err)
	}
}

// saveConditions saves the published conditions.
func (u *Status) saveConditions(uid pod.UID, now []v1.PodCondition) {
	if !slices.EqualFunc(u.before, now, sameCondition) {
		if err := u.o.Data.SaveConditions(uid, now); err != nil {
			u.o.Log.Debug("saving the pod's conditions failed", "err", err)
		}
	}
	u.before = now
}

func sameCondition(a, b v1.PodCondition) bool {
	same := a.LastProbeTime.Equal(&b.LastProbeTime) && a.LastTransitionTime.Equal(&b.LastTransitionTime)
	a.LastProbeTime, a.LastTransitionTime = b.LastProbeTime, b.LastTransitionTime
	return same && a == b
}
