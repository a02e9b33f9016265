package reconcile

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/relist"
	"podrun.io/podrun/internal/runtime"
)

// Loop owns the workers. Its maps belong to the goroutine in Run.
type Loop struct {
	o         Options
	slots     slots
	order     *order
	admission *admission
	workers   map[pod.Key]*worker
	// strays are pods that were seen and have no worker. An event that may not be acted on now must be
	// remembered: no second one comes.
	strays map[pod.Key]bool
	// listed says that everything has been seen once: before that it is not known whose a pod is.
	listed   bool
	last     manifest.Desired
	blame    manifest.Blame // last's
	finished chan *worker
	halt     atomic.Pointer[Halt] // nil: the machine goes on
	running  sync.WaitGroup
}

// NewLoop makes a Loop.
func NewLoop(o Options) *Loop {
	if o.Parallel <= 0 {
		o.Parallel = 4
	}
	l := &Loop{
		o: o, slots: newSlots(o.Parallel), order: newOrder(), admission: newAdmission(o.Node), workers: map[pod.Key]*worker{}, strays: map[pod.Key]bool{},
		finished: make(chan *worker),
	}
	for _, key := range o.Strays {
		l.strays[key] = true
	}
	return l
}

// Run serves until ctx ends and every worker has returned. Containers run on, unless StopAll.
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
			l.want(work, d)
		case e := <-events:
			l.handle(work, e)
		case key := <-l.o.Results:
			l.notify(key)
		case <-hurry:
			hurry = nil
			l.notifyAll()
		case h := <-l.o.Halt:
			l.halt.Store(&h)
			l.notifyAll()
		case w := <-l.finished:
			l.retire(work, w)
		}
	}
}

// want hands every pod's newest manifest to its worker.
func (l *Loop) want(ctx context.Context, d manifest.Desired) {
	l.last, l.blame = d, d.Blame()
	for key, p := range d.Pods {
		if l.workers[key] == nil {
			// It may be there: until its worker has looked, nobody else gets its place.
			l.admission.hold(key, plan.Requests(p))
		}
	}
	for key, p := range d.Pods {
		delete(l.strays, key)
		l.worker(ctx, key).set(p, l.blame.Of(p), d.Objects)
	}
	for key, w := range l.workers {
		if d.Pods[key] == nil {
			w.release(d)
		}
	}
	l.settleStrays(ctx)
}

// notify has a pod judged again, if it has a worker.
func (l *Loop) notify(key pod.Key) {
	if w := l.workers[key]; w != nil {
		w.notify()
	}
}

func (l *Loop) notifyAll() {
	for _, w := range l.workers {
		w.notify()
	}
}

func (l *Loop) handle(ctx context.Context, e relist.Event) {
	if w := l.workers[e.Pod]; w != nil {
		w.notify()
		return
	}
	if e.Kind == relist.Vanished {
		delete(l.strays, e.Pod)
		return
	}
	l.strays[e.Pod] = true
	l.settleStrays(ctx)
}

// settleStrays gives a worker to pods that nobody wants: to end them once it is sure that nobody does, and
// to keep them alive while a source of manifests that could tell is out of order.
func (l *Loop) settleStrays(ctx context.Context) {
	if l.o.Adopts == nil || !l.listed || !l.last.Complete && len(l.last.Problems) == 0 {
		return
	}
	for key := range l.strays {
		if !l.o.Adopts(l.o.Inspector.Seen(key)) {
			continue
		}
		delete(l.strays, key)
		l.worker(ctx, key).release(l.last)
	}
}

func (l *Loop) worker(ctx context.Context, key pod.Key) *worker {
	w := l.workers[key]
	if w == nil {
		w = newWorker(key, &l.o, l.slots, l.order, l.admission)
		w.halt = &l.halt
		l.workers[key] = w
		l.running.Go(func() { w.run(ctx, l.finished) })
	}
	return w
}

// retire lets a worker go whose pod is gone, unless the pod has been wanted again meanwhile.
func (l *Loop) retire(ctx context.Context, w *worker) {
	delete(l.workers, w.key)
	if p := l.last.Pods[w.key]; p != nil {
		l.worker(ctx, w.key).set(p, l.blame.Of(p), l.last.Objects)
	}
}

// stopAll ends all pods where that is asked for, and returns when they are gone.
func (l *Loop) stopAll(ctx context.Context, events <-chan relist.Event) {
	if l.o.StopAll == nil || !l.o.StopAll() {
		return
	}
	l.last = manifest.Desired{Pods: map[pod.Key]*v1.Pod{}}
	for _, w := range l.workers {
		w.set(nil, "", pod.Objects{})
	}
	hurry := l.o.Hurry
	for len(l.workers) > 0 {
		select {
		case <-hurry:
			hurry = nil
			l.notifyAll()
		case e := <-events:
			l.notify(e.Pod)
		case key := <-l.o.Results:
			l.notify(key)
		case w := <-l.finished:
			delete(l.workers, w.key)
		}
	}
}

// slots bound how much is made and cleared away at once: the machine's processors are the limit, and
// more at a time only makes each wait longer.
type slots struct{ make, clear chan struct{} }

func newSlots(n int) slots {
	return slots{make: make(chan struct{}, n), clear: make(chan struct{}, n)}
}

// longestSlot is how long a mutation keeps its slot. What takes longer does not work, it waits: for a shim or a mount
// that hangs, as a rule, and a few of those would keep every other pod from starting.
const longestSlot = 10 * time.Second

// within calls f, for as long as a mutation may take, and holds one of the slots as long as it is likely to work.
func within(ctx context.Context, slot chan struct{}, f func(context.Context) error) error {
	select {
	case slot <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	free := sync.OnceFunc(func() { <-slot })
	defer free()
	defer time.AfterFunc(longestSlot, free).Stop()
	return inTime(ctx, f)
}

// inTime calls f, for as long as a mutation may take.
func inTime(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, runtime.Timeout)
	defer cancel()
	err := f(ctx)
	if err != nil && ctx.Err() == context.DeadlineExceeded {
		err = fmt.Errorf("not done within %s: %w", runtime.Timeout, err)
	}
	return err
}
