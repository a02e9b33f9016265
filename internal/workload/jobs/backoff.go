package jobs

import (
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// until returns when the next try may begin after failures.
func (d *decision) until(f Failures) time.Time {
	if f.Failed == 0 {
		return d.Now
	}
	delay := firstBackoff
	for n := 1; n < f.Failed && delay < maxBackoff; n++ {
		delay *= 2
	}
	return f.Last.Add(min(delay, maxBackoff))
}

func (f Failures) plus(one Failures) Failures {
	f.Tries, f.Failed, f.Count = f.Tries+one.Tries, f.Failed+one.Failed, f.Count+one.Count
	if one.Last.After(f.Last) {
		f.Last = one.Last
	}
	return f
}

// setBack makes times that are later than now be now: the clock was set back. A back-off begins anew then, as do
// activeDeadlineSeconds and ttlSecondsAfterFinished.
func (h *History) setBack(now time.Time) {
	if s := &h.Status; s.StartTime != nil && s.StartTime.After(now) {
		s.StartTime = &metav1.Time{Time: now}
	}
	if end := Finished(&h.Status); end != nil && end.LastTransitionTime.After(now) {
		end.LastTransitionTime = metav1.Time{Time: now}
	}
	if h.Failures.Last.After(now) {
		h.Failures.Last = now
	}
	for i, f := range h.Indexes {
		if f.Last.After(now) {
			f.Last = now
			h.Indexes[i] = f
		}
	}
}

// Valid returns an error if the history cannot be one that podrun has recorded: its file was damaged.
func (h *History) Valid() error {
	failed := ""
	if h.Status.FailedIndexes != nil {
		failed = *h.Status.FailedIndexes
	}
	switch {
	case h.Run == "" || h.Document == "":
		return errors.New("it names no run")
	case size(spans(h.Status.CompletedIndexes)) > h.Created || size(spans(failed)) > h.Created:
		return errors.New("it has more indexes than pods")
	case slices.ContainsFunc(h.Tries, func(t Try) bool { return t.Name == "" }):
		return errors.New("a pod has no name")
	}
	return nil
}

// Step is that the clock was set.
type Step struct {
	// By is how much later it shows now.
	By time.Duration
	// From and To bound the times that it showed since the machine was booted, before it was set.
	From, To time.Time
}

// Shifted returns the history by a clock that was set: what was recorded by it since the machine was booted was not as
// long ago as it shows, or longer ago. It returns h itself if it has no such time.
func (h *History) Shifted(by Step) *History {
	out, changed := h.clone(), false
	shift := func(t *time.Time) {
		if !t.IsZero() && !t.Before(by.From) && !t.After(by.To) {
			*t, changed = t.Add(by.By), true
		}
	}
	shift(&out.Began)
	for _, t := range []*metav1.Time{out.Status.StartTime, out.Status.CompletionTime} {
		if t != nil {
			shift(&t.Time)
		}
	}
	for i := range out.Status.Conditions {
		shift(&out.Status.Conditions[i].LastTransitionTime.Time)
		shift(&out.Status.Conditions[i].LastProbeTime.Time)
	}
	shift(&out.Failures.Last)
	for i, f := range out.Indexes {
		shift(&f.Last)
		out.Indexes[i] = f
	}
	if !changed {
		return h
	}
	return out
}
