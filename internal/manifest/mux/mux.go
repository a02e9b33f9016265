// Package mux merges the snapshots of the sources of manifests as they arrive, and again when what is
// recorded of the pods of workloads has changed. It decides nothing: package manifest merges.
//
// Begin reading at Mux.
package mux

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/rollback"
	"podrun.io/podrun/internal/manifest/rollout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
)

// Patience is how long a source may take to be read for the first time before the pods of the
// sources after it start without it, and it is a problem. A source that fails delays nothing; only one that hangs,
// such as a file system, takes that long.
const Patience = 10 * time.Second

// ErrUnanswered is the error of a source that has neither been read nor failed within Patience.
var ErrUnanswered = errors.New("has not answered yet")

// Rollback says which revisions are rolled back.
type Rollback = rollback.Rollback

// Rollout replaces the pods of workloads by and by.
type Rollout = rollout.Rollout

// Record is what is recorded of the pods of workloads.
type Record interface {
	// Recorded returns the record. The result is not modified later.
	Recorded() workload.Recorded
	// Changed is sent to when the record may have changed in a way that matters.
	Changed() <-chan struct{}
	// Save records the histories, durably, and forgets those that are not among them. It returns
	// what could not be recorded or forgotten, to be tried again; nothing may be done that has not been recorded.
	Save(all workload.Histories) (failed map[workload.ID]bool)
	// Sent records that the pods were handed on, so that they may exist from now on.
	Sent(pods map[pod.Key]*v1.Pod)
}

// Mux merges the snapshots of several sources as they arrive.
type Mux struct {
	// Rollback says which revisions are rolled back. nil: none. It needs a record.
	Rollback *Rollback
	// Rollout replaces the pods of workloads by and by. nil: all of one are replaced at once. It needs a record.
	Rollout *Rollout
	// Before are the pods that were desired last. Set it to those that exist before Run is called.
	Before map[pod.Key]*v1.Pod

	sources manifest.Sources
	record  Record
	// unsaved reports that some histories could not be recorded, or forgotten.
	unsaved bool
}

// New returns a Mux for the sources with these names, in order of precedence, the highest first.
// running has the origins of the pods that run now; it is copied. record may be nil.
func New(order []string, running map[pod.Key]manifest.Origin, record Record) *Mux {
	seed := map[pod.Key]manifest.Origin{}
	maps.Copy(seed, running)
	return &Mux{sources: manifest.Sources{Order: order, Running: seed}, record: record}
}

// Run receives snapshots and sends the merged state until ctx ends; it then returns nil. A Desired
// that was not received yet is replaced by a newer one, so that no source has to wait for the
// receiver. If it is called again it goes on with the snapshots that it had.
func (m *Mux) Run(ctx context.Context, in <-chan manifest.Snapshot, out chan<- manifest.Desired) error {
	var newest manifest.Desired
	var ready chan<- manifest.Desired // nil while there is nothing new
	var changed <-chan struct{}
	if m.record != nil {
		changed = m.record.Changed()
	}
	late := time.NewTimer(Patience)
	defer late.Stop()
	again := time.NewTimer(clockCheck) // when workloads or revisions need it
	again.Stop()
	defer again.Stop()
	var merged time.Time
	var wait time.Duration // from merged on
	merge := func() {
		newest, ready, merged = m.merge(), out, time.Now()
		again.Stop()
		var due bool
		if wait, due = m.wait(newest); due {
			again.Reset(min(wait, clockCheck))
		}
	}
	if len(m.sources.Last) > 0 {
		merge()
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-late.C:
			if m.giveUp() {
				merge()
			}
		case <-changed:
			histories := len(newest.Jobs) + len(newest.CronJobs) + len(newest.Revisions)
			if len(newest.Workloads)+histories+len(newest.AutoUpdates) > 0 {
				merge()
			}
		case <-again.C:
			if left := wait - passed(merged); left > 0 {
				again.Reset(min(left, clockCheck))
				continue
			}
			merge()
		case s := <-in:
			m.sources.Record(s)
			merge()
		case ready <- newest:
			ready = nil
			if m.record != nil {
				m.record.Sent(newest.Pods)
			}
		}
	}
}

// giveUp makes the sources that have neither been read nor failed failing ones, and reports whether there are any.
func (m *Mux) giveUp() (any bool) {
	for _, name := range m.sources.Order {
		if _, read := m.sources.Last[name]; !read && m.sources.Failing[name] == nil {
			err := fmt.Errorf("reading manifests: %s %w", name, ErrUnanswered)
			m.sources.Record(manifest.Snapshot{Source: name, Err: err})
			any = true
		}
	}
	return any
}

// The waits before the state is merged again for workloads and revisions.
const (
	// longestWait bounds a wait: the clock may be set meanwhile.
	longestWait = time.Minute
	// clockCheck is how often a wait is compared with the clock: a timer stands still while the machine is suspended.
	clockCheck = 5 * time.Second
	// saveAgain is after what time a history that could not be recorded is tried again.
	saveAgain = time.Second
)

// wait returns after what time to merge again even if nothing changes, and whether to.
func (m *Mux) wait(d manifest.Desired) (wait time.Duration, due bool) {
	switch {
	case m.unsaved:
		return saveAgain, true
	case d.Next.IsZero():
		return 0, false
	}
	return min(max(d.Next.Sub(m.sources.Recorded.Now), time.Millisecond), longestWait), true
}

// passed returns the time since t, by the clock or by what a timer counts, whichever says more.
func passed(t time.Time) time.Duration {
	return max(time.Since(t), time.Now().Round(0).Sub(t.Round(0)))
}

func (m *Mux) merge() manifest.Desired {
	if m.record == nil {
		return m.sources.Update()
	}
	m.sources.Recorded = m.record.Recorded()
	d := m.decide()
	failed := m.record.Save(d.Histories)
	if m.unsaved = len(failed) > 0; m.unsaved {
		maps.Copy(m.sources.Recorded.Frozen, failed)
		d = m.decide()
	}
	m.sources.Adopt(d)
	m.Before = after(d, m.Before)
	return d
}

// after returns the pods that are desired, and those of before that stay as they are.
func after(d manifest.Desired, before map[pod.Key]*v1.Pod) map[pod.Key]*v1.Pod {
	all := maps.Clone(d.Pods)
	for key, p := range before {
		if all[key] == nil && d.Keeps(p) {
			all[key] = p
		}
	}
	return all
}

func (m *Mux) decide() manifest.Desired {
	d := manifest.Merge(m.sources)
	if m.Rollback != nil {
		m.Rollback.Apply(&d, m.sources.Recorded)
	}
	if m.Rollout != nil {
		m.Rollout.Apply(&d, m.sources.Recorded, m.Before)
	}
	return d
}
