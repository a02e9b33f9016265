package relist

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"podrun.io/podrun/internal/pod"
)

// Observer hears how listing goes, from several goroutines. It must not block.
type Observer interface {
	// Relisted hears of a full list: when it began, how long it took and the error that runtime.Lister's List returned.
	// Lists do not overlap.
	Relisted(began time.Time, took time.Duration, err error)
	// Inspected hears of a look at one pod.
	Inspected(took time.Duration, err error)
	// Stream hears that the event stream is there, or why it could not be had or broke.
	Stream(up bool, err error)
	// Notified hears how long after its event a ring came.
	Notified(late time.Duration)
	// Happened hears of every difference that was told.
	Happened(kind Kind)
}

// noopObserver is the Observer of those who want none.
type noopObserver struct{}

func (noopObserver) Relisted(time.Time, time.Duration, error) {}
func (noopObserver) Inspected(time.Duration, error)           {}
func (noopObserver) Stream(bool, error)                       {}
func (noopObserver) Notified(time.Duration)                   {}
func (noopObserver) Happened(Kind)                            {}

// Counts sum up what was seen.
type Counts struct {
	// Pods is how many pods have a sandbox that is ready.
	Pods int
	// Containers are the instances by state.
	Containers map[pod.State]int
}

// Counts counts what was seen.
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

// lateAfter is how far the newest good list may lie back beyond the period before it counts as missing:
// a runtime that hangs gives no error.
const lateAfter = 20 * time.Second

// Failing returns why what was seen may be out of date now: the last list or look failed, or could not tell of a pod,
// or none came.
// Unlike Healthy it is impatient.
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
	case since > max(evented, r.o.Period)+lateAfter:
		return fmt.Errorf("containers were last listed %s ago", since.Round(time.Second))
	}
	return nil
}
