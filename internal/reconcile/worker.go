package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/probe"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/status"
)

// worker serves one pod name through all its revisions. All but the fields under mu belong to the
// goroutine in run.
type worker struct {
	key       pod.Key
	o         *Options
	slots     slots
	order     *order
	admission *admission
	halt      *atomic.Pointer[Halt] // the loop's
	log       *slog.Logger
	changed   chan struct{}

	mu      sync.Mutex
	want    *v1.Pod
	bad     string            // what is wrong with want's manifest now
	version int               // counts what was set
	desired *manifest.Desired // to be asked whether a pod without a manifest stays
	given   pod.Objects       // what manifests have of ConfigMaps and Secrets

	chosenVersion int // the turn that pod came from
	pod           *v1.Pod
	resized       *v1.Pod         // pod with what its manifest says it has, until it is given that; nil: it is
	shown         *v1.Pod         // what was published last came of it
	completed     bool            // it was published that the pod has completed
	leaving       bool            // it was published that the pod is being ended for good
	ready         map[string]bool // and, by instance ID, what is ready still
	saved         *v1.Pod         // what was kept on disk last for a pod that ran already
	maxGrace      *time.Duration  // the longest that ending it may take
	problem       string          // what is wrong with its manifest
	objects       pod.Objects     // what pod may refer to
	measure       measure
	clock         clock
	stale         bool             // volumes may show what objects or pod were before
	unsure        bool             // not known what to keep, nor that it may go
	earlier       bool             // a completed pod is of an earlier run
	replaced      bool             // what is there under pod's UID is of another manifest, or was being ended
	unwanted      map[pod.UID]bool // revisions that were not wanted and of which something was ended since
	signalled     map[string]pod.Signals
	late          map[string]bool // by instance ID: its last signal was not sent in time
	failures      map[string]plan.Failure
	renewed       map[string]*pod.Failed // by instance ID, what ends for its resources' sake
	before        []v1.PodCondition      // as published last
	images        map[string]*image
	pulled        chan pullResult
	hooks         hooks
	targets       []probe.Target // what was asked how it is, last
	hooked        chan hookResult
	beside        sync.WaitGroup // pulls, hooks and measurements
	trouble       int            // failed rounds in a row
	loggedTrouble string         // the last trouble that was logged
	recorded      recordedEvents // what the last events of their kind were
	unpublished   bool           // how the pod is could not be published
	owns          bool           // this process had the pod when it was asked last
	barred        *plan.Waiting  // why it has not got the pod; nil: it has, or was not asked
	withheld      bool           // it is shown that the pod is another's, who keeps its checkpoint
	outdated      bool           // the pod has not been inspected since something was done, or since this process has it
}

const (
	firstTrouble   = 500 * time.Millisecond
	longestTrouble = 30 * time.Second
	// refreshAgain is when volumes and statuses that could not be brought up to date are tried again.
	refreshAgain = time.Second
)

func newWorker(key pod.Key, o *Options, s slots, turns *order, r *admission) *worker {
	return &worker{
		key: key, o: o, slots: s, order: turns, admission: r, log: o.Log.With("pod", key.String()), changed: make(chan struct{}, 1),
		earlier: o.Rerun, unwanted: map[pod.UID]bool{}, signalled: map[string]pod.Signals{}, late: map[string]bool{}, failures: map[string]plan.Failure{},
		renewed: map[string]*pod.Failed{}, images: map[string]*image{}, pulled: make(chan pullResult),
		hooks: newHooks(), hooked: make(chan hookResult), measure: newMeasure(),
		clock: newClock(o.Wall),
	}
}

// set says what is wanted from now on; nil: nothing. bad is what is wrong with its manifest since p was
// read. objects are what it may refer to.
func (w *worker) set(p *v1.Pod, bad string, objects pod.Objects) {
	w.mu.Lock()
	w.want, w.bad, w.desired, w.given = p, bad, nil, objects
	w.version++
	w.mu.Unlock()
	w.notify()
}

// release says that no manifest names the pod any more. Whether it goes depends on what it runs: a pod
// whose manifest only cannot be read stays.
func (w *worker) release(d manifest.Desired) {
	w.mu.Lock()
	w.want, w.bad, w.desired, w.given = nil, "", &d, d.Objects
	w.version++
	w.mu.Unlock()
	w.notify()
}

// notify asks for a new judgement.
func (w *worker) notify() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// run works until ctx ends, or until the pod is neither wanted nor there any more; then it offers itself
// to finished.
func (w *worker) run(ctx context.Context, finished chan<- *worker) {
	defer w.beside.Wait()
	// What is this pod's by its name must not be taken from a successor, which may begin as soon as this one is offered
	// to finished.
	end := sync.OnceFunc(w.end)
	defer end()
	// Not before it is told what is wanted: until then it would take that for nothing.
	w.wait(ctx, 0)
	look := true
	for ctx.Err() == nil {
		wake, gone := w.sync(ctx, look)
		if gone && w.retire() {
			end()
			select {
			case finished <- w:
			case <-ctx.Done():
			}
			return
		}
		look = w.wait(ctx, wake)
	}
}

// end gives back what the worker has of what others share.
func (w *worker) end() {
	w.o.Prober.Set(w.key, nil)
	w.measure.cancel()
	w.hooks.keep(nil)
	w.stopPulls()
	w.admission.forget(w)
	w.order.forget(w)
	w.letGo() // last: until then something may be done to the pod
}

// wait returns when there is reason for another round, and whether that round must look for itself.
func (w *worker) wait(ctx context.Context, wake time.Duration) (look bool) {
	var timer <-chan time.Time
	if wake > 0 {
		timer = time.After(wake)
	}
	select {
	case <-ctx.Done():
	case <-timer:
		return true
	case <-w.pullTick(): // how far pulls are is worth a status, not a look
	case <-w.changed:
	case r := <-w.pulled:
		w.keepPull(r)
	case r := <-w.hooked:
		w.keepHook(r)
	case r := <-w.measure.done:
		w.keepMeasured(r)
	}
	return false
}

// retire reports that nothing has been set since the last round took what it wanted.
func (w *worker) retire() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.chosenVersion == w.version
}

// sync plans, does, looks again, until the plan has nothing to do.
func (w *worker) sync(ctx context.Context, look bool) (wake time.Duration, gone bool) {
	seen := w.o.Inspector.Seen(w.key)
	w.outdated = w.outdated || look
	for ctx.Err() == nil {
		looked := false
		acquired, err := w.acquire()
		if err != nil {
			return w.troubled(err), false
		}
		if !acquired {
			switch {
			case w.named():
				return ownerPoll, false
			case !seen.Empty():
				return unwantedPoll, false // it may be this process's to end when the other one lets it go
			}
			return 0, w.unwantedByAll()
		}
		if w.outdated {
			if seen, err = w.inspect(ctx); err != nil {
				return w.troubled(err), w.leave(err)
			}
			if w.outdated, looked = false, true; w.withheld {
				w.withheld = false
				w.notOwned(nil)
			}
		}
		if w.chooseRevision(seen); w.unsure {
			return 0, false
		}
		if w.foreign(seen) {
			if w.outdated = !looked; w.outdated {
				continue // whose it is may have been written down since
			}
			return 0, true
		}
		w.resume(seen)
		w.account(seen)
		w.refresh(ctx, seen)
		w.probe(ctx, seen)
		w.measureDisk(ctx, seen)
		p := plan.Compute(w.input(seen))
		if !p.Again {
			if w.replaced {
				w.before = nil // what was published is not this pod's
			}
			w.earlier, w.replaced = false, false
		}
		w.recordPlan(seen, p)
		w.noteUnwanted(seen, p)
		w.publish(seen, p, len(p.Actions) == 0)
		w.recordProbes(seen)
		w.followLogs(seen)
		if len(p.Actions) == 0 {
			w.trouble, w.loggedTrouble = 0, ""
			if w.stale || w.unpublished {
				p.Wake = sooner(p.Wake, refreshAgain)
			}
			if !p.Completed {
				p.Wake = sooner(p.Wake, w.measureAgain())
			}
			return p.Wake, p.Gone && !w.unpublished
		}
		look, err = w.perform(ctx, seen, p.Actions)
		w.outdated = look // until then nothing else is done: not everything that wakes a worker has inspected the pod
		if err != nil {
			w.publish(seen, p, true)
			wake = w.troubled(err)
			if p.Wake > 0 { // what else is due in the pod does not wait for what failed
				wake = min(wake, max(p.Wake, firstTrouble))
			}
			return wake, false
		}
	}
	return 0, false
}

// troubled counts a failed round and says when to try again.
func (w *worker) troubled(err error) time.Duration {
	w.trouble++
	if w.o.Troubled != nil {
		w.o.Troubled(w.key, err)
	}
	level := slog.LevelWarn
	if text := err.Error(); text == w.loggedTrouble || errors.Is(err, context.Canceled) {
		level = slog.LevelDebug // said already
	} else {
		w.loggedTrouble = text
	}
	w.log.Log(context.Background(), level, "trying again later", "why", err)
	if errors.Is(err, runtime.ErrUnavailable) {
		return time.Second
	}
	return min(firstTrouble<<min(w.trouble-1, 10), longestTrouble)
}

// longestGrace is the longest grace period that is given now; nil: each instance's own.
func (w *worker) longestGrace() *time.Duration {
	select {
	case <-w.o.Hurry:
		return new(time.Duration)
	default:
		return w.maxGrace
	}
}

func (w *worker) input(seen pod.Observed) plan.Input {
	images := map[string]plan.Image{}
	for name, i := range w.images {
		images[name] = plan.Image{Pulling: i.cancel != nil, Ready: i.cancel == nil, Progress: w.progress(i)}
	}
	var since time.Time
	if w.pod != nil && slices.Contains(seen.Data, w.pod.UID) {
		since = w.since(w.pod)
	}
	return w.halted(plan.Input{
		Since: since, MaxGrace: w.longestGrace(), Node: w.o.Node, Used: w.used(), NodeLabels: w.o.NodeLabels, Pod: w.pod, Resized: w.resized, Observed: w.steady(seen), Images: images, Signalled: w.signalled, Failures: w.failures,
		Probed: w.probed(seen), After: w.after(),
		Evicted: w.measure.why, Boot: w.o.Boot, Earlier: w.earlier, Replaced: w.replaced, MaxBackoff: w.o.MaxBackoff, Now: time.Now(),
	})
}

// publish tells how the pod is; resting: nothing happens to it for now, be it because that failed. A pod that is on its
// way out keeps its last status until it is gone, but for what its readiness probes say.
func (w *worker) publish(seen pod.Observed, p plan.Plan, resting bool) {
	var err error
	switch {
	case p.Gone:
		w.shown, w.before = nil, nil
		w.order.report(w.key, false)
		err = w.o.Publisher.Gone(w.key)
	case w.pod == nil && (len(p.Actions) > 0 || w.ending(seen)):
		if w.shown == nil {
			w.showLast(seen, p)
		}
		if ready := w.readyStill(seen); !w.leaving || !maps.Equal(ready, w.ready) {
			err = w.o.Publisher.Leaving(w.key, time.Now(), ready)
			w.leaving, w.ready = err == nil, ready
		}
	case w.pod != nil && (resting || w.shown != w.pod || p.Completed && !w.completed):
		if w.shown != nil && w.shown.UID != w.pod.UID {
			w.before = nil
		}
		w.loadConditions()
		// What is between two states of rest is not worth a file each. A result is: what is left to do may take long.
		w.shown, w.leaving, w.completed = w.pod, false, p.Completed
		out := w.pod.DeepCopy()
		if w.resized != nil {
			out = pod.Sized(w.pod, w.resized) // the manifest's; what it has is in the status
		}
		if w.problem != "" {
			metaAnnotation(out, manifest.AnnotationError, w.problem)
		}
		if !p.Next.IsZero() {
			metaAnnotation(out, manifest.AnnotationNext, p.Next.UTC().Format(time.RFC3339))
		}
		out.Status = status.Of(status.Input{Pod: w.pod, Observed: seen, Plan: p, Probed: w.probed(seen), HostIP: w.o.HostIP, Before: w.before, Now: time.Now()})
		w.saveConditions(out.Status.Conditions)
		w.order.report(w.key, !p.Again && Arrived(out))
		err = w.o.Publisher.Publish(out, len(p.Actions) == 0)
	}
	if w.unpublished = err != nil; !w.unpublished {
		w.recorded.unheard = ""
	} else if err.Error() != w.recorded.unheard { // it is tried again and again
		w.recorded.unheard = err.Error()
		w.log.Error("status not written", "why", err)
	}
}

// showLast publishes how a pod is that an earlier podrun ran and that is being ended now.
func (w *worker) showLast(seen pod.Observed, p plan.Plan) {
	last := w.running(seen)
	if last == nil {
		return // what it was is not known
	}
	w.shown = last
	out := last.DeepCopy()
	before, _ := w.o.Data.LoadConditions(last.UID) // without them only the times are others
	out.Status = status.Of(status.Input{
		Pod: last, Observed: seen, Plan: p, Probed: w.probed(seen), HostIP: w.o.HostIP, Before: before, Now: time.Now(),
	})
	if err := w.o.Publisher.Publish(out, false); err != nil {
		w.log.Warn("status not written", "err", err)
	}
}

func (w *worker) followLogs(seen pod.Observed) {
	for _, c := range seen.Containers {
		if c.State == pod.Running {
			w.o.Logs.Follow(instance(w.key, c), c.PID)
		}
	}
}

func instance(key pod.Key, c pod.Container) pod.Instance {
	return pod.Instance{ID: c.ID, Key: key, UID: c.UID, Container: c.Name, Attempt: c.Attempt}
}
