package reconcile

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile/admission"
	"podrun.io/podrun/internal/relist"
)

// Loop owns the workers and passes manifests and events to them. Only the goroutine of Run accesses
// its maps.
type Loop struct {
	o       Options
	shared  *shared
	workers map[pod.Key]*worker
	// strays are observed pods that have no worker. An event that must not be acted on yet is
	// remembered here, because no second event follows.
	strays map[pod.Key]bool
	// listed reports that the first complete list has been read. Before that the owner of a pod is
	// not known.
	listed   bool
	last     manifest.Desired
	problems manifest.PodProblems // of last
	finished chan *worker
	running  sync.WaitGroup
}

// NewLoop returns a Loop. Call Run to start it.
func NewLoop(o Options) *Loop {
	if o.Parallel <= 0 {
		o.Parallel = 4
	}
	if o.Wall == nil {
		o.Wall = time.Now
	}
	l := &Loop{
		o:        o,
		shared:   newShared(&o),
		workers:  map[pod.Key]*worker{},
		strays:   map[pod.Key]bool{},
		finished: make(chan *worker),
	}
	for _, key := range o.Strays {
		l.strays[key] = true
	}
	return l
}

// Run works until ctx ends and every worker has returned. It returns ctx's error. The containers
// keep running, unless Options.StopAll returns true.
func (l *Loop) Run(ctx context.Context, desired <-chan manifest.Desired, events <-chan relist.Event) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer l.running.Wait()
	hurry := l.o.Hurry
	listed := l.o.Inspector.Listed()
	defer stop()
	for {
		select {
		case <-ctx.Done():
			l.stopAll(work, events)
			return ctx.Err()
		case <-listed:
			l.listed, listed = true, nil
			l.settleStrays(work)
		case d := <-desired:
			l.distribute(work, d)
		case e := <-events:
			l.handle(work, e)
		case key := <-l.o.Results:
			l.notify(key)
		case <-l.o.Ping:
		case <-l.o.Requested:
			l.notifyAll()
		case <-l.o.Remount:
			for _, w := range l.workers {
				w.mailbox.Remount()
			}
		case <-hurry:
			hurry = nil
			l.notifyAll()
		case h := <-l.o.Halt:
			l.shared.halt.Store(&h)
			for _, w := range l.workers {
				w.mailbox.Halt(&h)
			}
		case w := <-l.finished:
			l.retire(work, w)
		}
	}
}

// distribute passes the newest manifest of every pod to its worker.
func (l *Loop) distribute(ctx context.Context, d manifest.Desired) {
	l.last, l.problems = d, d.PodProblems()
	for key, p := range d.Pods {
		if l.workers[key] == nil {
			// The pod may already be running: reserve its requests until its worker has inspected
			// it, so that no other pod is admitted in its place.
			l.expect(key, p)
		}
	}
	for key, arrived := range d.Arrived {
		if d.Pods[key] == nil {
			l.shared.order.Report(key, arrived)
		}
	}
	for key, p := range d.Pods {
		delete(l.strays, key)
		l.worker(ctx, key).mailbox.put(desiredPod{pod: p, bad: l.problems.Of(p), objects: d.ObjectsOf(key)})
	}
	for _, key := range d.Inspect {
		l.worker(ctx, key).mailbox.Inspect()
	}
	for key, w := range l.workers {
		if d.Pods[key] == nil {
			w.mailbox.put(released(d))
		}
	}
	l.settleStrays(ctx)
}

// expect reserves what p requests, unless nothing of it is on the machine.
func (l *Loop) expect(key pod.Key, p *v1.Pod) {
	select {
	case <-l.o.Inspector.Listed():
		if !isThere(l.o.Inspector.Seen(key)) {
			return
		}
	default: // nobody knows what is there
	}
	l.shared.resources.Expect(key, plan.Requests(p))
}

// notify wakes the pod's worker, if it has one.
func (l *Loop) notify(key pod.Key) {
	if w := l.workers[key]; w != nil {
		w.mailbox.Notify()
	}
}

func (l *Loop) notifyAll() {
	for _, w := range l.workers {
		w.mailbox.Notify()
	}
}

func (l *Loop) handle(ctx context.Context, e relist.Event) {
	if w := l.workers[e.Pod]; w != nil {
		w.mailbox.Notify()
		return
	}
	if e.Kind == relist.Vanished {
		delete(l.strays, e.Pod)
		return
	}
	l.strays[e.Pod] = true
	l.settleStrays(ctx)
}

// settleStrays gives workers to pods that no manifest names. A worker terminates such a pod once it
// is certain that no source names it, and keeps the pod running while a source that could name it
// cannot be read.
func (l *Loop) settleStrays(ctx context.Context) {
	if l.o.Terminates == nil || !l.listed || !l.last.Complete && len(l.last.Problems) == 0 {
		return
	}
	for key := range l.strays {
		if !l.o.Terminates(l.o.Inspector.Seen(key)) {
			continue
		}
		delete(l.strays, key)
		l.worker(ctx, key).mailbox.put(released(l.last))
	}
}

func (l *Loop) worker(ctx context.Context, key pod.Key) *worker {
	w := l.workers[key]
	if w == nil {
		w = newWorker(key, &l.o, l.shared)
		l.workers[key] = w
		l.running.Go(func() { w.run(ctx, l.finished) })
	}
	return w
}

// retire removes a worker whose pod is gone. It starts a new one if the pod has been added again
// meanwhile.
func (l *Loop) retire(ctx context.Context, w *worker) {
	delete(l.workers, w.key)
	if p := l.last.Pods[w.key]; p != nil {
		l.worker(ctx, w.key).mailbox.put(desiredPod{pod: p, bad: l.problems.Of(p), objects: l.last.ObjectsOf(w.key)})
	}
}

// criticalWait is how long critical pods run on while others end, when all are removed: less than what systemd gives a
// service to stop.
const criticalWait = 60 * time.Second

// stopMargin is how long a pod may take to be removed after its grace period.
const stopMargin = 90 * time.Second

// longestStop returns how long stopAll takes, unless something hangs.
func (l *Loop) longestStop() time.Duration {
	var grace time.Duration
	for _, p := range l.last.Pods {
		if given := p.Spec.TerminationGracePeriodSeconds; given != nil {
			grace = max(grace, pod.Seconds(*given))
		}
	}
	return criticalWait + grace + stopMargin
}

// stopAll terminates and removes all pods if Options.StopAll asks for it, and returns when they are
// gone. Those with a critical priority, such as storage drivers, come last, or after criticalWait: others may need
// them until they have ended.
func (l *Loop) stopAll(ctx context.Context, events <-chan relist.Event) {
	if l.o.StopAll == nil || !l.o.StopAll(l.longestStop()) {
		return
	}
	pods := l.last.Pods
	l.shared.stops.Store(true)
	l.last = manifest.Desired{Pods: map[pod.Key]*v1.Pod{}}
	hurry := l.o.Hurry
	enough := time.After(criticalWait)
	left := map[*worker]bool{}
	for _, below := range []int64{pod.CriticalPriority, math.MaxInt64} {
		for key, w := range l.workers {
			if p := pods[key]; p == nil || pod.Priority(p) < below {
				left[w] = true
				w.mailbox.put(released(manifest.Desired{Complete: true}))
			}
		}
		for late := false; len(left) > 0 && (!late || below == math.MaxInt64); {
			select {
			case <-hurry:
				hurry, late = nil, true
				l.notifyAll()
			case <-enough:
				late = true
			case e := <-events:
				l.notify(e.Pod)
			case key := <-l.o.Results:
				l.notify(key)
			case <-l.o.Ping:
			case w := <-l.finished:
				delete(left, w)
				delete(l.workers, w.key)
			}
		}
	}
}

// shared is what all workers of a loop share.
type shared struct {
	slots     admission.Slots
	order     *admission.Order
	resources *admission.Resources
	halt      atomic.Pointer[Halt] // nil: the machine is not shutting down
	stops     atomic.Bool          // Options.Stops, or all pods end with the loop
}

func newShared(o *Options) *shared {
	s := &shared{
		slots:     admission.NewSlots(o.Parallel),
		order:     admission.NewOrder(),
		resources: admission.NewResources(o.Node, o.Devices),
	}
	s.stops.Store(o.Stops)
	return s
}
