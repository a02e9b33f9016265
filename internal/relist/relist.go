// Package relist is the pod lifecycle event generator: it lists what the runtime has, compares with what
// it saw before and tells the difference. It is the only writer of what was seen. It decides nothing,
// and an event is only a reason to look: the record is the truth.
package relist

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// Periods of the full list.
const (
	// DefaultPeriod is the period without an event stream.
	DefaultPeriod = time.Second
	// evented is the period while a healthy event stream rings.
	evented = 10 * time.Second
	// unhealthyAfter is how long no list may succeed.
	unhealthyAfter = 3 * time.Minute
)

// Options make a Relister.
type Options struct {
	Lister runtime.Lister
	// Notifier may be nil: then polling alone finds what happened.
	Notifier runtime.Notifier
	Period   time.Duration
	// Observer may be nil.
	Observer Observer
	Log      *slog.Logger
}

// Relister holds what was seen of every pod.
type Relister struct {
	o        Options
	mu       sync.Mutex
	sequence uint64 // numbers every inspection at its beginning
	pods     map[pod.Key]record
	good     time.Time
	err      error
	// listed is closed when a list has succeeded, and everything that it found is in found.
	listed chan struct{}
	// events are the differences that were found, until Run sends them.
	events  []Event
	changed chan struct{}
	// inspecting has the beginnings of the inspections that go on.
	inspecting map[pod.Key][]moment
	// relistSoon says that a look failed that a ring had asked for, or been passed over for.
	relistSoon bool
}

// moment is when looking began. Turns number all looks and lists, in the order in which they began.
type moment struct {
	sequence uint64
	at       time.Time
}

// record is the newest sight of a pod.
type record struct {
	seen pod.Observed
	moment
}

// New makes a Relister; Run feeds it.
func New(o Options) *Relister {
	if o.Period <= 0 {
		o.Period = DefaultPeriod
	}
	if o.Observer == nil {
		o.Observer = noopObserver{}
	}
	return &Relister{
		o: o, pods: map[pod.Key]record{}, inspecting: map[pod.Key][]moment{}, good: time.Now(),
		changed: make(chan struct{}, 1), listed: make(chan struct{}),
	}
}

// Run lists and listens until ctx ends, and sends every difference, in the order in which they were found. It blocks
// when out is not read. A list that takes long, and a look at a pod that does, delay no other look.
func (r *Relister) Run(ctx context.Context, out chan<- Event) error {
	stream := newStream(r.o.Notifier, r.o.Observer, r.o.Log)
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { stream.run(ctx) })
	looks := newInspections(func(key pod.Key) { r.answer(ctx, key) })
	defer looks.wait()
	lists := newSchedule()
	defer lists.stop()
	listed := make(chan struct{}, 1)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-lists.due():
			if lists.begin() {
				beside.Go(func() {
					r.list(ctx)
					listed <- struct{}{}
				})
			}
		case <-listed:
			lists.end(r.period(stream))
		case <-stream.changed:
			lists.within(0)
		case <-r.changed:
		case key := <-looks.done:
			looks.end(key)
		case ring := <-stream.wakeups:
			if !ring.At.IsZero() {
				r.o.Observer.Notified(time.Since(ring.At))
			}
			if ring.All {
				lists.within(0)
			} else if !r.knows(ring) {
				looks.ask(ring.Key)
			}
		}
		events, owed := r.drainEvents()
		if owed {
			lists.within(r.o.Period)
		}
		for _, e := range events {
			select {
			case out <- e:
				r.o.Observer.Happened(e.Kind)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// period is how long until the next full list: short again as soon as the stream or a list fails.
func (r *Relister) period(s *stream) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.healthy() && r.err == nil {
		return max(evented, r.o.Period)
	}
	return r.o.Period
}

// knows reports an echo of something that a look shows that began since. Only of those: when the clock is set
// back meanwhile, this errs.
func (r *Relister) knows(ring runtime.Wakeup) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := func(m moment) bool { return m.at.After(ring.At) }
	return ring.Echo && (since(r.pods[ring.Key].moment) || slices.ContainsFunc(r.inspecting[ring.Key], since))
}

// answer inspects the pod that a ring names. A failed inspection keeps the old record; the full list
// that follows within a period looks again.
func (r *Relister) answer(ctx context.Context, key pod.Key) {
	if _, err := r.Inspect(ctx, key); err != nil && ctx.Err() == nil {
		r.failed(err)
	}
}

func (r *Relister) drainEvents() (events []Event, owed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	events, owed = r.events, r.relistSoon
	r.events, r.relistSoon = nil, false
	return events, owed
}

// Inspect inspects one pod now and returns the newest that is known of it. What changed is told like any other change.
func (r *Relister) Inspect(ctx context.Context, key pod.Key) (pod.Observed, error) {
	began := r.begin(key)
	seen, err := r.o.Lister.Inspect(ctx, key)
	if ctx.Err() == nil {
		r.o.Observer.Inspected(time.Since(began.at), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// In one with keeping what it saw: no list may end in between, which would not know what it outdates.
	r.inspected(key, began)
	if err != nil {
		r.relistSoon = true
		r.notify()
		return pod.Observed{}, fmt.Errorf("inspecting %s: %w", key, err)
	}
	if events := r.keep(seen, began); len(events) > 0 {
		r.events = append(r.events, events...)
		r.notify()
	}
	return r.pods[key].seen, nil
}

// notify wakes Run.
func (r *Relister) notify() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// Seen returns the newest sight of a pod without looking.
func (r *Relister) Seen(key pod.Key) pod.Observed {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec, ok := r.pods[key]; ok {
		return rec.seen
	}
	return pod.Observed{Key: key}
}

// Listed is closed when everything that is there has been seen once.
func (r *Relister) Listed() <-chan struct{} { return r.listed }

// Healthy returns an error when no list has succeeded for 3 minutes.
func (r *Relister) Healthy() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := time.Since(r.good)
	switch {
	case since <= unhealthyAfter:
		return nil
	case r.err == nil: // it hangs
		return fmt.Errorf("no list of containers has succeeded for %s", since.Round(time.Second))
	default:
		return fmt.Errorf("no list of containers has succeeded for %s: %w", since.Round(time.Second), r.err)
	}
}

// begin numbers what begins now: an inspection of each of these pods, or, without any, a list.
func (r *Relister) begin(keys ...pod.Key) moment {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sequence++
	began := moment{sequence: r.sequence, at: time.Now()}
	for _, key := range keys {
		r.inspecting[key] = append(r.inspecting[key], began)
	}
	return began
}

// inspected forgets an inspection that has ended. The caller holds mu.
func (r *Relister) inspected(key pod.Key, began moment) {
	left := slices.DeleteFunc(r.inspecting[key], func(m moment) bool { return m.sequence == began.sequence })
	if r.inspecting[key] = left; len(left) == 0 {
		delete(r.inspecting, key)
	}
}

func (r *Relister) failed(err error) {
	r.mu.Lock()
	first := r.err == nil
	r.err = err
	r.mu.Unlock()
	if first {
		r.o.Log.Warn("listing containers failed; keeping what was seen before", "why", err)
	}
}

// keep records a sight and returns the difference, unless a later look has been recorded meanwhile. The
// caller holds mu.
func (r *Relister) keep(seen pod.Observed, began moment) []Event {
	old, known := r.pods[seen.Key]
	if known && old.sequence > began.sequence {
		return nil
	}
	if !known {
		old.seen.Key = seen.Key
	}
	seen.Gone = gone(old.seen, seen)
	// An empty sight is kept too, until a list that began later agrees and no inspection goes on: what began before
	// must not bring the pod back.
	r.pods[seen.Key] = record{seen: seen, moment: began}
	return Diff(old.seen, seen)
}

// list looks at everything. What could not be told of some pods leaves the list a good one: they keep their old
// records, and the next list is soon.
func (r *Relister) list(ctx context.Context) {
	began := r.begin()
	all, err := r.o.Lister.List(ctx)
	var unknown []pod.Observed
	bad := err
	if some := (*runtime.UnknownError)(nil); errors.As(err, &some) {
		unknown, bad = some.Pods, nil
	}
	if ctx.Err() == nil {
		r.o.Observer.Relisted(began.at, time.Since(began.at), err)
		if err != nil {
			r.failed(err)
		}
	}
	if bad != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil && err == nil {
		r.o.Log.Info("listing containers works again")
	}
	r.err, r.good = err, time.Now()
	for _, seen := range all {
		r.events = append(r.events, r.keep(seen, began)...)
	}
	for key := range r.inspecting {
		if _, known := r.pods[key]; !known {
			r.pods[key] = record{seen: pod.Observed{Key: key}} // older than every list
		}
	}
	for key, rec := range r.pods {
		if rec.sequence >= began.sequence { // listed now, or looked at since
			continue
		}
		if slices.ContainsFunc(unknown, func(o pod.Observed) bool { return o.Key == key }) {
			continue
		}
		r.events = append(r.events, r.keep(pod.Observed{Key: key}, began)...)
		if len(r.inspecting[key]) == 0 { // what began before the list must not bring the pod back
			delete(r.pods, key)
		}
	}
	select {
	case <-r.listed:
	default:
		close(r.listed)
	}
}
