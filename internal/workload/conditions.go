package workload

import (
	"fmt"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/workload/revisions"
	"podrun.io/podrun/internal/workload/rollouts"
)

// The reasons of the conditions of Deployments, which are Kubernetes'.
const (
	reasonAvailable   = "MinimumReplicasAvailable"
	reasonUnavailable = "MinimumReplicasUnavailable"
	reasonComplete    = "NewReplicaSetAvailable"
	reasonUpdated     = "ReplicaSetUpdated"
	reasonTimedOut    = "ProgressDeadlineExceeded"
)

// Outcome returns what has become of the revision that the manifest has, by what is recorded: without a result it is
// being tried; nil: nothing is recorded. hashOf identifies a template.
func (w *Workload) Outcome(recorded Histories, hashOf func(*v1.Pod) string) *revisions.Outcome {
	h := recorded.Revisions[w.ID]
	o := h.Current()
	if o == nil || o.Result != revisions.Healthy || h.Updates != nil {
		return o
	}
	if hashOf(h.Good.Template) != hashOf(w.Template) { // that of a new one could not be recorded
		return &revisions.Outcome{}
	}
	return o
}

// times are what the pods of a Deployment say of when something changed. They are zero where nothing is known.
type times struct {
	// seen is when the template, or else the first pod, was first seen.
	seen time.Time
	// began is when the first pod of the template did, and progressed when the last one of them became ready or
	// available, or began.
	began, progressed time.Time
	// gained are the times at which the available pods became so, in order, and lost is the last time at which one that
	// is not ready ceased to be.
	gained []time.Time
	lost   time.Time
}

func timesOf(s State) times {
	t := times{seen: s.Seen}
	var first time.Time
	settled := MinReady(s.Object)
	for _, p := range s.Pods {
		start := started(p)
		if first = earlier(first, start); p.DeletionTimestamp != nil {
			continue
		}
		is, at := readiness(p)
		last := start
		switch {
		case !is:
			t.lost = later(t.lost, later(at, start))
		default:
			last = later(last, at)
			if available := at.Add(settled); !available.After(s.Now) {
				t.gained = append(t.gained, later(start, available))
				last = later(last, available)
			}
		}
		if s.HashOf(p) == s.Hash {
			t.began, t.progressed = earlier(t.began, start), later(t.progressed, last)
		}
	}
	if t.seen.IsZero() {
		t.seen = first
	}
	slices.SortFunc(t.gained, time.Time.Compare)
	return t
}

// readiness returns whether a pod is ready, and since when, zero if that is not known.
func readiness(p *v1.Pod) (is bool, at time.Time) {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue, c.LastTransitionTime.Time
		}
	}
	return false, time.Time{}
}

// started returns when the run of a pod began; zero if that is not known.
func started(p *v1.Pod) time.Time {
	if p.Status.StartTime != nil {
		return p.Status.StartTime.Time
	}
	return p.CreationTimestamp.Time
}

// earlier and later return one of two times of which a zero one is not known.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// conditions returns the conditions of a Deployment. The times in them follow from those of the pods and of the
// template, since nothing is remembered: the same pods have the same ones.
func conditions(d *appsv1.Deployment, s State, counts Summary) []appsv1.DeploymentCondition {
	t := timesOf(s)
	all := []appsv1.DeploymentCondition{available(d, counts, t)}
	if n := d.Spec.ProgressDeadlineSeconds; n != nil && *n != math.MaxInt32 { // as in Kubernetes
		all = append(all, progressing(d, s, counts, t))
	}
	return all
}

func available(d *appsv1.Deployment, s Summary, t times) appsv1.DeploymentCondition {
	unavailable := 0
	if rolling := d.Spec.Strategy.RollingUpdate; rolling != nil && rolling.MaxUnavailable != nil {
		unavailable = rollouts.Scaled(rolling.MaxSurge, rolling.MaxUnavailable, int(s.Desired), 0).Unavailable
	}
	least := int(s.Desired) - unavailable
	c := appsv1.DeploymentCondition{
		Type: appsv1.DeploymentAvailable, Status: v1.ConditionTrue, Reason: reasonAvailable,
		Message: "Deployment has minimum availability.",
	}
	since := t.lost
	if int(s.Available) < least {
		c.Status, c.Reason = v1.ConditionFalse, reasonUnavailable
		c.Message = fmt.Sprintf("Deployment does not have minimum availability: %d of %d pods are available.",
			s.Available, s.Desired)
	} else if since = t.seen; least > 0 && least <= len(t.gained) {
		since = t.gained[least-1]
	}
	if since.IsZero() {
		since = t.seen
	}
	c.LastUpdateTime, c.LastTransitionTime = metav1.NewTime(since), metav1.NewTime(since)
	return c
}

// progressing returns the condition Progressing. It is False if the revision was rolled back, or has failed. If
// revisions are not recorded, only an update that has not ended can have missed its deadline: pods that are left of the
// former template prove that it has not. Of others it is not known whether all pods were available once.
func progressing(d *appsv1.Deployment, s State, counts Summary, t times) appsv1.DeploymentCondition {
	c := appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing, Status: v1.ConditionTrue}
	former, result, at := counts.Current-counts.Updated, revisions.Result(""), time.Time{}
	updated := counts.Updated
	if s.Outcome != nil {
		result, at = s.Outcome.Result, s.Outcome.Ended
		if result == revisions.RolledBack && s.Outcome.Reason == revisions.Undone {
			// The template that is wanted is the former one then, which was healthy.
			result, updated = revisions.Healthy, former
		}
	}
	mixed := counts.Updated > 0 && former > 0
	last := later(t.seen, t.progressed)
	deadline := last.Add(time.Duration(*d.Spec.ProgressDeadlineSeconds) * time.Second)
	complete := updated == counts.Desired && counts.Current == counts.Desired && counts.Available == counts.Desired
	switch {
	case result == revisions.RolledBack:
		c.Status, c.Reason = v1.ConditionFalse, reasonTimedOut
	case complete, result == revisions.Healthy && !mixed: // once complete, it stays so if a pod is lost
		c.Reason, c.Message = reasonComplete, fmt.Sprintf("Deployment %q has successfully progressed.", d.Name)
		if at.IsZero() || result != revisions.Healthy {
			at = earlier(t.progressed, last)
		}
	case result == revisions.Failed:
		c.Status, c.Reason = v1.ConditionFalse, reasonTimedOut
	case s.Outcome == nil && former > 0 && s.Now.After(deadline):
		c.Status, c.Reason, at = v1.ConditionFalse, reasonTimedOut, deadline
	default:
		c.Reason, c.Message, at = reasonUpdated, fmt.Sprintf("Deployment %q is progressing.", d.Name), last
	}
	if at.IsZero() {
		at = last
	}
	c.LastUpdateTime, c.LastTransitionTime = metav1.NewTime(at), metav1.NewTime(at)
	if c.Status == v1.ConditionTrue {
		c.LastTransitionTime = metav1.NewTime(earlier(at, earlier(t.seen, t.began)))
		return c
	}
	c.Message = fmt.Sprintf("Deployment %q has timed out progressing.", d.Name)
	if s.Outcome != nil && s.Outcome.Reason != "" {
		c.Message = fmt.Sprintf("Deployment %q has timed out progressing: %s", d.Name, s.Outcome.Reason)
	}
	return c
}
