package event

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys/errtext"
	"podrun.io/podrun/internal/sys/excerpt"
)

// lag is how long events are collected before they are written, so that simultaneous events cause
// one write and none delays the start of a container.
const lag = 500 * time.Millisecond

// mostPending limits how many events wait to be written when the disk accepts no writes.
const mostPending = 10000

// Recorder writes events to the file while Run is running. It implements the interfaces of the
// packages that record events: record.Events, probe.Recorder and problems.Recorder.
type Recorder struct {
	dirs    layout.Dirs
	node    string
	log     *slog.Logger
	changed chan struct{}

	mu      sync.Mutex
	pending []Record
}

// New returns a Recorder for the events on a node.
func New(dirs layout.Dirs, node string, log *slog.Logger) *Recorder {
	return &Recorder{dirs: dirs, node: node, log: log, changed: make(chan struct{}, 1)}
}

// Record adds an event to those that Run writes. It does not block and may be called from any
// goroutine.
func (r *Recorder) Record(e pod.Event) {
	now := time.Now()
	record := Record{
		Kind: e.Kind, Namespace: e.Key.Namespace, Name: e.Key.Name, UID: e.UID, Node: r.node,
		Container: e.Container, Init: e.Init,
		Warning: e.Warning, Reason: e.Reason, Message: excerpt.Of(strings.TrimSpace(e.Message), mostMessage),
		Count: 1, First: now.UTC(), Last: now.UTC(),
	}
	if e.Key == (pod.Key{}) {
		record.Name = r.node
	}
	r.mu.Lock()
	if len(r.pending) < mostPending {
		r.pending = append(r.pending, record)
	}
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// Run writes events until ctx ends, and then those that are left.
func (r *Recorder) Run(ctx context.Context) error {
	var logged error
	write := func() {
		err := r.write()
		if err != nil && !errtext.Same(err, logged) {
			r.log.Warn("writing events failed, they are lost", "err", err)
		}
		logged = err
	}
	defer write()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.changed:
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lag):
		}
		write()
	}
}

// write writes the pending events. Events that cannot be written are dropped, because otherwise
// they could accumulate without limit.
func (r *Recorder) write() error {
	r.mu.Lock()
	pending := r.pending
	r.pending = nil
	r.mu.Unlock()
	if len(pending) == 0 {
		return nil
	}
	return add(r.dirs.Events(), fold(pending))
}
