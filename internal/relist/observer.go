package relist

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"podrun.io/podrun/internal/pod"
)

// Observer receives measurements of the relister, for example for metrics. Its methods are called
// from several goroutines and must not block.
type Observer interface {
	// Relisted is called after a full list, with its beginning, its duration and the error that
	// runtime.Lister's List returned. Lists do not overlap.
	Relisted(began time.Time, took time.Duration, err error)
	// Inspected is called after the inspection of one pod.
	Inspected(took time.Duration, err error)
	// Stream is called when the event stream was established, or with the error if it could not be
	// established or broke.
	Stream(up bool, err error)
	// Notified is called with the delay between an event and its wakeup.
	Notified(late time.Duration)
	// Happened is called for every event that Run has sent.
	Happened(kind Kind)
}

// noopObserver is the Observer that does nothing.
type noopObserver struct{}

func (noopObserver) Relisted(time.Time, time.Duration, error) {}
func (noopObserver) Inspected(time.Duration, error)           {}
func (noopObserver) Stream(bool, error)                       {}
func (noopObserver) Notified(time.Duration)                   {}
func (noopObserver) Happened(Kind)                            {}

// Counts summarizes what was observed.
type Counts struct {
	// Pods is the number of pods that have a ready sandbox.
	Pods int
	// Containers is the number of instances by state.
	Containers map[pod.State]int
}

// Counts returns the numbers of pods and instances in the newest observations.
func (r *Relister) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := Counts{Containers: map[pod.State]int{}}
	for _, rec := range r.pods {
		for _, s := range rec.seen.Sandboxes {
			if s.Ready {
				n.Pods++
				break
			}
		}
		for _, c := range rec.seen.Containers {
			n.Containers[c.State]++
		}
	}
	return n
}

// Running returns the pods with an instance that runs, in the order of their keys, and only those
// instances.
func (r *Relister) Running() []pod.Observed {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []pod.Observed
	for key, rec := range r.pods {
		running := slices.DeleteFunc(slices.Clone(rec.seen.Containers), func(c pod.Container) bool {
			return c.State != pod.Running
		})
		if len(running) > 0 {
			out = append(out, pod.Observed{Key: key, Containers: running})
		}
	}
	slices.SortFunc(out, func(a, b pod.Observed) int {
		return cmp.Or(cmp.Compare(a.Key.Namespace, b.Key.Namespace), cmp.Compare(a.Key.Name, b.Key.Name))
	})
	return out
}

// lateAfter is how long after the relist period the newest successful list counts as missing: a
// runtime that hangs returns no error.
const lateAfter = 20 * time.Second

// Failing returns why the observations may be out of date: the last list or inspection failed or
// could not report some pods, or no list has completed in time. Unlike Healthy it reports a problem
// at once.
func (r *Relister) Failing() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := time.Since(r.good)
	select {
	case <-r.listed:
	default:
		return cmp.Or(r.err, errors.New("containers have not been listed yet"))
	}
	switch {
	case r.err != nil:
		return r.err
	case since > max(r.current, evented, r.o.Period)+lateAfter:
		return fmt.Errorf("containers were last listed %s ago", since.Round(time.Second))
	}
	return nil
}
