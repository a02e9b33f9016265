package sources

import (
	"maps"
	"sync"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/workload"
)

// Record records which pods of workloads exist, by the statuses that it passes on. It implements
// mux.Record and reconcile.Publisher. Its methods are safe for concurrent use.
type Record struct {
	reconcile.Publisher
	mu      sync.Mutex
	exists  map[pod.Key]string
	changed chan struct{}
}

// NewRecord returns an empty Record that passes statuses on to a publisher.
func NewRecord(to reconcile.Publisher) *Record {
	return &Record{Publisher: to, exists: map[pod.Key]string{}, changed: make(chan struct{}, 1)}
}

// Seed adds the pods of serve, of which all are the checkpoints, and returns r.
func (r *Record) Seed(all map[pod.Key][]*checkpoint.Checkpoint) *Record {
	for _, revisions := range all {
		if revisions[0].Owner == owner.Serve {
			r.add(revisions[0].Pod)
		}
	}
	return r
}

func (r *Record) add(p *v1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if of := p.Annotations[workload.Annotation]; of != "" {
		r.exists[pod.KeyOf(p)] = of
	}
}

// Recorded implements mux.Record.
func (r *Record) Recorded() workload.Recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	return workload.Recorded{Exists: maps.Clone(r.exists)}
}

// Changed implements mux.Record.
func (r *Record) Changed() <-chan struct{} { return r.changed }

// Publish implements reconcile.Publisher.
func (r *Record) Publish(p *v1.Pod, settled bool) error {
	r.add(p)
	return r.Publisher.Publish(p, settled)
}

// Gone implements reconcile.Publisher.
func (r *Record) Gone(key pod.Key) error {
	r.mu.Lock()
	_, existed := r.exists[key]
	delete(r.exists, key)
	r.mu.Unlock()
	if existed {
		select {
		case r.changed <- struct{}{}:
		default: // it was not received yet, and says the same
		}
	}
	return r.Publisher.Gone(key)
}
