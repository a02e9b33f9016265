// Package mux merges the snapshots of the sources of manifests as they arrive, and again when what is
// recorded of the pods of workloads has changed. It decides nothing: package manifest merges.
//
// Begin reading at Mux.
package mux

import (
	"context"
	"maps"
	"time"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
)

// Patience is how long a source may take to be read for the first time before the pods of the
// sources after it start without it. A source that fails delays nothing; only one that hangs, such
// as a file system, takes that long.
const Patience = 10 * time.Second

// Record is what is recorded of the pods of workloads.
type Record interface {
	// Recorded returns the record. The result is not modified later.
	Recorded() workload.Recorded
	// Changed is sent to when the record may have changed in a way that matters.
	Changed() <-chan struct{}
}

// Mux merges the snapshots of several sources as they arrive.
type Mux struct {
	sources manifest.Sources
	record  Record
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
// receiver.
func (m *Mux) Run(ctx context.Context, in <-chan manifest.Snapshot, out chan<- manifest.Desired) error {
	var newest manifest.Desired
	var ready chan<- manifest.Desired // nil while there is nothing new
	var changed <-chan struct{}
	if m.record != nil {
		changed = m.record.Changed()
	}
	late := time.NewTimer(Patience)
	defer late.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-late.C:
			m.sources.Late = true
			if len(m.sources.Last)+len(m.sources.Failing) > 0 && !newest.Complete {
				newest, ready = m.merge(), out
			}
		case <-changed:
			if len(newest.Workloads) > 0 {
				newest, ready = m.merge(), out
			}
		case s := <-in:
			m.sources.Record(s)
			newest, ready = m.merge(), out
		case ready <- newest:
			ready = nil
		}
	}
}

func (m *Mux) merge() manifest.Desired {
	if m.record != nil {
		m.sources.Recorded = m.record.Recorded()
	}
	return m.sources.Update()
}
