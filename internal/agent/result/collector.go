// Package result collects what becomes of the pods of one run of once or down: their statuses,
// which it also passes on to the status files, what fails, and which pods are gone. It says when a
// run is done (each of its pods is: see Done), what its result is (Result), and what is left to
// remove.
//
// The package does nothing to pods, and does not decide what happens to them.
//
// Begin reading at Collector.
package result

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
	"podrun.io/podrun/internal/workload"
)

// Collector collects the statuses of the pods of one run and passes them on to the status files.
type Collector struct {
	files    *status.Files
	progress func(*v1.Pod)
	change   chan struct{} // receives a value at every change
	mu       sync.Mutex
	pods     map[pod.Key]*v1.Pod
	settled  map[pod.Key]bool
	gone     map[pod.Key]bool
	trouble  map[pod.Key]trouble // the last one
	began    time.Time
	done     map[pod.Key]time.Time // since when a pod has its result
	ready    map[pod.Key]period    // of services that are ready
	backoff  map[pod.Key]period    // of services that are in back-off
	stuck    map[pod.Key]error     // why a pod can never start
	pulls    pulls
	seen     func(pod.Key) pod.Observed // may be nil
	desired  manifest.Desired
}

// trouble is a failed action of a pod.
type trouble struct {
	why error
	at  time.Time
}

// NewCollector returns the collector of a run of want, which may be empty. progress is called with each
// pod whose status changed, from several goroutines; nil: nobody wants to know.
func NewCollector(files *status.Files, want manifest.Desired, progress func(*v1.Pod)) *Collector {
	c := &Collector{
		files: files, progress: progress, change: make(chan struct{}, 1), pods: map[pod.Key]*v1.Pod{},
		settled: map[pod.Key]bool{}, gone: map[pod.Key]bool{}, trouble: map[pod.Key]trouble{},
		began: time.Now(), done: map[pod.Key]time.Time{}, ready: map[pod.Key]period{},
		backoff: map[pod.Key]period{}, stuck: map[pod.Key]error{}, pulls: newPulls(), desired: want,
	}
	for key, p := range want.Pods {
		if of, _ := workload.Of(p); of.Kind != workload.Job { // those of Jobs come and go
			c.pods[key] = p
		}
	}
	return c
}

// Publish implements reconcile.Publisher: it records a pod's status as part of the result and
// passes it on to the status files. The status of a pod that is being terminated for good is passed
// on only: the pod's result is the status before.
func (c *Collector) Publish(p *v1.Pod, seen time.Time, settled bool) error {
	if p.DeletionTimestamp != nil {
		return c.files.Publish(p, seen, settled)
	}
	key := pod.KeyOf(p)
	c.mu.Lock()
	c.pods[key], c.settled[key] = p, settled
	if of, _ := workload.Of(p); of.Kind == workload.Job {
		delete(c.gone, key) // that was the pod of an earlier run
	}
	if _, was := c.done[key]; !Done(p) {
		delete(c.done, key)
	} else if !was {
		c.done[key] = time.Now()
	}
	follow(c.ready, p, isService(p) && pod.Arrived(p))
	follow(c.backoff, p, isService(p) && inBackOff(p))
	c.mu.Unlock()
	if c.progress != nil {
		c.progress(p)
	}
	c.notify()
	return c.files.Publish(p, seen, settled)
}

// NotOwned does nothing: a run acquires the locks that it needs before it starts anything. If a
// lock is lost later, Troubled is called.
func (c *Collector) NotOwned(pod.Key, *v1.Pod, *plan.Waiting) error { return nil }

// Gone records that a pod was removed. It may be called twice: a late event of a removed pod makes
// the loop inspect the pod again.
func (c *Collector) Gone(key pod.Key) error {
	err := c.files.Gone(key)
	c.mu.Lock()
	c.gone[key] = true
	c.mu.Unlock()
	c.notify()
	return err
}

// Troubled records why an action of a pod has failed.
func (c *Collector) Troubled(key pod.Key, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trouble[key] = trouble{why, time.Now()}
}

func (c *Collector) notify() {
	select {
	case c.change <- struct{}{}:
	default:
	}
}

// Stuck records why a pod can never start. It ends the run.
func (c *Collector) Stuck(key pod.Key, why error) {
	c.mu.Lock()
	if c.stuck[key] == nil {
		c.stuck[key] = why
	}
	c.mu.Unlock()
	c.notify()
}

// Wait returns when every pod is done and no actions are left, when a pod can never start, or earlier
// when ctx ends or after the timeout. Actions that are left when all pods are done delay the result by
// at most the cleanup timeout.
func (c *Collector) Wait(ctx context.Context, o Options) Result {
	var late, over <-chan time.Time
	if o.Timeout > 0 {
		late = time.After(o.Timeout)
	}
	var known time.Time // since when all pods are done
	for {
		r, settled, next := c.result(o)
		done := r.done()
		switch {
		case !done:
			known, over = time.Time{}, nil
		case over == nil:
			known, over = time.Now(), time.After(o.CleanupTimeout)
		}
		if settled || len(r.Stuck) > 0 {
			return c.timed(r)
		}
		select {
		case <-c.change:
			continue
		case <-after(next):
			continue
		case <-over:
			r.Unsettled = true
		case <-ctx.Done():
			r.Interrupted, r.Unsettled = true, done
		case <-late:
			r.TimedOut = !done
		}
		if done {
			r.Settling = time.Since(known)
		}
		return c.timed(r)
	}
}

// after is time.After, but never for 0.
func after(d time.Duration) <-chan time.Time {
	if d <= 0 {
		return nil
	}
	return time.After(d)
}

// timed returns r with the times that its pods took. They are measured here because a status has only
// whole seconds.
func (c *Collector) timed(r Result) Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Durations, r.Runs = map[pod.Key]time.Duration{}, map[pod.Key]map[string]time.Duration{}
	stranded := r.Stranded()
	for _, p := range r.Pods {
		key, from, until := pod.KeyOf(p), c.began, time.Now()
		if at := p.Status.StartTime; at != nil && at.After(from) {
			from = at.Time
		}
		if done, is := c.done[key]; is {
			until = done
		}
		if !stranded[key] {
			r.Durations[key] = max(0, until.Sub(from))
		}
		seen := pod.Observed{}
		if c.seen != nil {
			seen = c.seen(key)
		}
		r.Runs[key] = runTimes(p, seen, until)
	}
	return r
}

// result returns the pods and their statuses. settled reports that all are done and no actions are
// left. next is when the result may change without a change of a status; 0: it does not.
func (c *Collector) result(o Options) (r Result, settled bool, next time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Stuck, r.Unstable, r.CrashLooping = map[pod.Key]error{}, map[pod.Key]bool{}, map[pod.Key]bool{}
	r.Jobs = jobsOf(c.desired)
	inBackOff := c.inBackOff()
	for key, p := range c.pods {
		r.Pods = append(r.Pods, p)
		c.checkReady(key, p)
		if left := o.Stable - time.Since(c.ready[key].since); c.ready[key].run != "" && left > 0 {
			r.Unstable[key], next = true, sooner(next, left)
		}
	}
	if o.PullTimeout > 0 && c.pulls.check(c.pods, o.PullTimeout, c.stuck) {
		next = sooner(next, pullPoll)
	}
	for key, why := range c.stuck {
		r.Stuck[key] = why
	}
	r.findCrashLoops(inBackOff)
	stranded := r.Stranded()
	settled = r.jobsDone(stranded)
	for key, p := range c.pods {
		_, ofJob := r.JobOf(p)
		settled = settled && (c.settled[key] && r.Done(p) || stranded[key] || ofJob && c.gone[key] && r.Done(p))
	}
	slices.SortFunc(r.Pods, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return r, settled, next
}

// Observe sets the function that returns what was observed of a pod last. A status is older than that while
// containers are being restarted.
func (c *Collector) Observe(seen func(pod.Key) pod.Observed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = seen
}

// checkReady makes the time for which a service is ready begin anew if one of its containers has ended since its
// status.
func (c *Collector) checkReady(key pod.Key, p *v1.Pod) {
	of, ready := c.ready[key]
	if !ready || c.seen == nil || runsAs(p, c.seen(key)) {
		return
	}
	of.since = time.Now()
	c.ready[key] = of
}

// inBackOff returns the services that wait to be restarted. A service that failed before another one
// was ready may have needed it, and has another attempt.
func (c *Collector) inBackOff() map[pod.Key]bool {
	var latest time.Time
	for key, at := range c.done {
		if isService(c.pods[key]) && at.After(latest) {
			latest = at
		}
	}
	crashing := map[pod.Key]bool{}
	for key, p := range c.backoff {
		crashing[key] = p.since.After(latest)
	}
	return crashing
}

// sooner returns the shorter of two waits, where 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// WaitGone returns when these pods have been removed, or ctx ends.
func (c *Collector) WaitGone(ctx context.Context, keys map[pod.Key]bool) {
	for len(c.Left(keys)) > 0 {
		select {
		case <-c.change:
		case <-ctx.Done():
			return
		}
	}
}

// failing reports that an action of each of these pods has failed within the last while, and
// returns the longest grace period of those that run.
func (c *Collector) failing(left []Left, while time.Duration) (all bool, grace time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all = true
	for _, l := range left {
		t, failed := c.trouble[l.Key]
		all = all && failed && time.Since(t.at) <= while
		if p := c.pods[l.Key]; p != nil {
			grace = max(grace, graceOf(p))
		}
	}
	return all, grace
}

// Left returns those of the pods that have not been removed, sorted, each with its last error, if
// any.
func (c *Collector) Left(keys map[pod.Key]bool) []Left {
	c.mu.Lock()
	defer c.mu.Unlock()
	var left []Left
	for key := range keys {
		if !c.gone[key] {
			left = append(left, Left{key, c.trouble[key].why})
		}
	}
	slices.SortFunc(left, func(a, b Left) int { return cmp.Compare(a.Key.String(), b.Key.String()) })
	return left
}

// Unsettled returns those of the pods for which the loop has actions left.
func (c *Collector) Unsettled(keys map[pod.Key]*v1.Pod) []Left {
	c.mu.Lock()
	defer c.mu.Unlock()
	var left []Left
	for key := range keys {
		if !c.settled[key] {
			left = append(left, Left{key, c.trouble[key].why})
		}
	}
	slices.SortFunc(left, func(a, b Left) int { return cmp.Compare(a.Key.String(), b.Key.String()) })
	return left
}
