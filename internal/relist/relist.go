// Package relist is podrun's pod lifecycle event generator. It lists what the container runtime
// has, compares it with the previous observation and sends the differences as events. It is the
// only writer of the observations, which [Relister] holds.
//
// The package decides nothing. An event is only a reason to read the pod's observation, which is
// authoritative. Begin reading at [Relister] and its method Run.
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
	// DefaultPeriod is the relist period without an event stream.
	DefaultPeriod = time.Second
	// evented is the relist period while the event stream is healthy. It doubles with each list that
	// finds nothing that had not been told of, up to longest, if all processes are watched too.
	evented = 10 * time.Second
	longest = time.Minute
	// unhealthyAfter is how long no list may have succeeded before Healthy returns an error.
	unhealthyAfter = 3 * time.Minute
)

// Options are the dependencies and settings of a Relister.
type Options struct {
	Lister runtime.Lister
	// Notifier may be nil; then changes are found by polling only.
	Notifier runtime.Notifier
	// Processes may be nil; then a lost event is found by the next full list.
	Processes Processes
	Period    time.Duration
	// Observer may be nil.
	Observer Observer
	Log      *slog.Logger
}

// Relister holds the newest observation of every pod.
type Relister struct {
	o        Options
	mu       sync.Mutex
	sequence uint64 // numbers lists and inspections in the order in which they begin
	pods     map[pod.Key]record
	good     time.Time
	err      error
	outage   outage
	// listed is closed when a list has succeeded and its result is in pods.
	listed chan struct{}
	// events are the differences that Run has not sent yet.
	events  []Event
	changed chan struct{}
	// inspecting holds the beginnings of the inspections in progress.
	inspecting map[pod.Key][]moment
	// relistSoon reports that an inspection failed. A wakeup may have requested it, or been skipped
	// because of it, so the next full list must come soon.
	relistSoon bool
	// watched holds the instances and sandboxes whose processes are or were watched.
	watched map[string]bool
	// overdue are the pods of processes that ended, although no event told of it.
	overdue []pod.Key
	// allWatched reports that the last list found no process that is not watched, and surprised that
	// it found an end that nothing had told of.
	allWatched, surprised bool
	// current is the current relist period; 0 if the event stream or the last list failed.
	current time.Duration
}

// moment is when an inspection or list began. sequence numbers all of them in the order in which
// they began.
type moment struct {
	sequence uint64
	at       time.Time
}

// record is the newest observation of a pod.
type record struct {
	seen pod.Observed
	moment
}

// New returns a Relister, which observes nothing before Run is called.
func New(o Options) *Relister {
	if o.Period <= 0 {
		o.Period = DefaultPeriod
	}
	if o.Observer == nil {
		o.Observer = noopObserver{}
	}
	return &Relister{
		o: o, pods: map[pod.Key]record{}, inspecting: map[pod.Key][]moment{}, watched: map[string]bool{},
		good: time.Now(), changed: make(chan struct{}, 1), listed: make(chan struct{}),
	}
}

// Run lists and inspects until ctx ends, and sends every difference to out, in the order in which
// the differences were found. It blocks while out is not read. A slow list or a slow inspection
// delays no other inspection.
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
		events, overdue, owed := r.drain()
		for _, key := range overdue {
			looks.ask(key)
		}
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

// period returns the time until the next full list: the short period as soon as the stream or a
// list fails, or a list finds an end that nothing had told of.
func (r *Relister) period(s *stream) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !s.healthy() || r.err != nil:
		r.current = 0
		return r.o.Period
	case r.surprised:
		r.current = r.o.Period
	case r.current == 0:
		r.current = evented
	case r.allWatched:
		r.current = min(2*r.current, longest)
	default:
		r.current = min(2*r.current, evented)
	}
	return max(r.current, r.o.Period)
}

// knows reports whether the wakeup is an echo of podrun's own operation, and an inspection or list
// that began after the event covers it. It is used for echoes only, because it is wrong if the
// clock was set back meanwhile.
func (r *Relister) knows(ring runtime.Wakeup) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := func(m moment) bool { return m.at.After(ring.At) }
	return ring.Echo && (since(r.pods[ring.Key].moment) || slices.ContainsFunc(r.inspecting[ring.Key], since))
}

// answer inspects the pod of a wakeup. If the inspection fails, the old observation stays, and a
// full list follows within a period.
func (r *Relister) answer(ctx context.Context, key pod.Key) {
	if _, err := r.Inspect(ctx, key); err != nil && ctx.Err() == nil {
		r.failed(err)
	}
}

// drain returns the differences to send, the pods to inspect, and whether a full list must come
// soon.
func (r *Relister) drain() (events []Event, overdue []pod.Key, owed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	events, overdue, owed = r.events, r.overdue, r.relistSoon
	r.events, r.overdue, r.relistSoon = nil, nil, false
	return events, overdue, owed
}

// Inspect inspects one pod now and returns its newest observation. Changes are sent as events like
// any others.
func (r *Relister) Inspect(ctx context.Context, key pod.Key) (pod.Observed, error) {
	began := r.begin(key)
	seen, err := r.o.Lister.Inspect(ctx, key)
	if ctx.Err() == nil {
		r.o.Observer.Inspected(time.Since(began.at), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// Both happen under one lock: a list that ends in between would not see that its result for the
	// pod is older.
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

// Seen returns the newest observation of a pod without inspecting it.
func (r *Relister) Seen(key pod.Key) pod.Observed {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec, ok := r.pods[key]; ok {
		return rec.seen
	}
	return pod.Observed{Key: key}
}

// Listed returns a channel that is closed when everything has been listed once.
func (r *Relister) Listed() <-chan struct{} { return r.listed }

// Healthy returns an error if no list has succeeded for 3 minutes.
func (r *Relister) Healthy() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := time.Since(r.good)
	switch {
	case since <= unhealthyAfter:
		return nil
	case r.err == nil: // the runtime hangs
		return fmt.Errorf("no list of containers has succeeded for %s", since.Round(time.Second))
	default:
		return fmt.Errorf("no list of containers has succeeded for %s: %w", since.Round(time.Second), r.err)
	}
}

// begin numbers what begins now: an inspection of each of the keys or, without keys, a list.
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

// beginList numbers a list.
func (r *Relister) beginList() moment {
	began := r.begin()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outage.listing = began.at
	return began
}

// inspected removes an inspection that has finished from inspecting. The caller holds mu.
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
	if errors.Is(err, runtime.ErrUnavailable) {
		r.outage.begin(time.Now())
	}
	r.mu.Unlock()
	if first {
		r.o.Log.Warn("listing containers failed; keeping the previous observations", "err", err)
	}
}

// keep stores an observation and returns the differences, unless a later one has been stored
// meanwhile. The caller holds mu.
func (r *Relister) keep(seen pod.Observed, began moment) []Event {
	old, known := r.pods[seen.Key]
	if known && old.sequence > began.sequence {
		return nil
	}
	if !known {
		old.seen.Key = seen.Key
	}
	// An empty observation is stored too, until a list that began later confirms it and no
	// inspection is in progress: the result of one that began earlier must not bring the pod back.
	seen.At = began.at
	r.pods[seen.Key] = record{seen: seen, moment: began}
	r.watch(seen)
	return Diff(old.seen, seen)
}

// list lists all pods. Pods that cannot be inspected do not fail the list: they keep their old
// observations, and the next list comes soon.
func (r *Relister) list(ctx context.Context) {
	began := r.beginList()
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
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outage.listed(time.Now(), bad == nil)
	if bad != nil {
		return
	}
	if r.err != nil && err == nil {
		r.o.Log.Info("listing containers works again")
	}
	r.err, r.good, r.surprised = err, time.Now(), false
	keep := func(seen pod.Observed) {
		found := r.keep(seen, began)
		r.surprised = r.surprised || r.missed(seen.Key, found)
		r.events = append(r.events, found...)
	}
	for _, seen := range all {
		keep(seen)
	}
	for key := range r.inspecting {
		if _, known := r.pods[key]; !known {
			r.pods[key] = record{seen: pod.Observed{Key: key}} // older than every list
		}
	}
	for key, rec := range r.pods {
		if rec.sequence >= began.sequence { // in this list, or inspected since
			continue
		}
		if slices.ContainsFunc(unknown, func(o pod.Observed) bool { return o.Key == key }) {
			continue
		}
		keep(pod.Observed{Key: key})
		if len(r.inspecting[key]) == 0 { // else one that began before the list could bring the pod back
			delete(r.pods, key)
		}
	}
	r.allWatched = r.forgetWatched()
	select {
	case <-r.listed:
	default:
		close(r.listed)
	}
}
