package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
)

// OnceOptions are the options of Once.
type OnceOptions struct {
	// Timeout limits the wait for results, including the preparation. 0: no limit.
	Timeout time.Duration
	// Remove stops and removes all pods at the end.
	Remove bool
	// CleanupTimeout is how long cleaning up may take once the result is known and the terminating
	// pods have ended. 0: DefaultCleanupTimeout.
	CleanupTimeout time.Duration
	// Interrupted is called once if the context ends after pods were started. stops reports that
	// pods are being terminated, within their grace periods; otherwise only the wait for the
	// cleanup ends. May be nil.
	Interrupted func(stops bool)
	// Progress is called with each pod whose status changed, from several goroutines. May be nil.
	Progress func(p *v1.Pod)
	// Begun is called once before anything is run, with a function that returns the progress of an
	// image's pull. May be nil.
	Begun func(pulling func(image string) (pod.Progress, bool))
	// Finished is called once when the results are known, before anything is removed.
	Finished func(r Result)
}

// Result is the outcome of Once.
type Result struct {
	// Pods are sorted by namespace and name, with their last status.
	Pods []*v1.Pod
	// TimedOut and Interrupted report what ended the wait before every pod was done. Interrupted is
	// also set by an interrupt while the result is shown or while Once cleans up.
	TimedOut, Interrupted bool
	// Removed reports that no pod of the run exists any more.
	Removed bool
	// Left are the pods that could not be cleaned up completely.
	Left []Left
	// settling is how long all pods were done while actions were left for them. unsettled reports
	// that this took too long.
	settling  time.Duration
	unsettled bool
}

// Left is a pod that could not be cleaned up in time.
type Left struct {
	Key pod.Key
	// Why is the last error; nil if there was none.
	Why error
}

// done reports that every pod has reached its result, or never will because another pod has failed.
func (r Result) done() bool {
	stranded := r.Stranded()
	return !slices.ContainsFunc(r.Pods, func(p *v1.Pod) bool { return !Done(p) && !stranded[pod.KeyOf(p)] })
}

// stopped reports that an interrupt terminates the pods. An interrupt after all pods have their
// results only ends a wait.
func (r Result) stopped() bool { return r.Interrupted && !r.done() }

// Failed reports that a pod failed.
func (r Result) Failed() bool {
	return slices.ContainsFunc(r.Pods, func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
}

// Stranded returns the pods that were not started because a pod that they start after has failed,
// or was not started either.
func (r Result) Stranded() map[pod.Key]bool {
	lost, stranded := map[pod.Key]bool{}, map[pod.Key]bool{}
	for _, p := range r.Pods {
		lost[pod.KeyOf(p)] = p.Status.Phase == v1.PodFailed
	}
	for again := true; again; {
		again = false
		for _, p := range r.Pods {
			key := pod.KeyOf(p)
			waits := p.Status.Reason == plan.ReasonWaitingForPods && !lost[key]
			if waits && slices.ContainsFunc(pod.After(p), func(k pod.Key) bool { return lost[k] }) {
				lost[key], stranded[key], again = true, true, true
			}
		}
	}
	return stranded
}

// onceLogTries makes once retry a log without disk space for seven seconds and then continue:
// otherwise the caller could wait for the result without end. What is left to do after that fits
// into DefaultCleanupTimeout.
const onceLogTries = 4

// Once runs the pods of all sources once and waits until each is done. When ctx ends first, it
// stops the pods; at the timeout, it stops those that are not done. Once returns soon after that
// even if something hangs; what it has begun may then continue until the process exits.
func Once(ctx context.Context, o Options, once OnceOptions) (Result, error) {
	if once.CleanupTimeout == 0 {
		once.CleanupTimeout = DefaultCleanupTimeout
	}
	began, prepare := time.Now(), ctx
	if once.Timeout > 0 {
		var enough context.CancelFunc
		prepare, enough = context.WithTimeout(ctx, once.Timeout)
		defer enough()
	}
	late := func(doing string, err error) error {
		if ctx.Err() == nil && prepare.Err() != nil {
			return &TimeoutError{Doing: doing, After: once.Timeout}
		}
		return err
	}
	want, err := promptly(prepare, func() (manifest.Desired, error) { return readOnce(prepare, o) })
	if err != nil {
		return Result{}, late("reading manifests", err)
	}
	new(problemLog).report(o.Log, want)
	if o.locks == nil {
		o.locks = newPodLocks(o.Dirs, ownerOnce)
	}
	if err := acquireAll(prepare, o.locks, want.Pods); err != nil {
		return Result{}, late("locking the pods", err)
	}
	board := newBoard(status.NewFiles(o.Dirs), want, once.Progress)
	h, err := promptly(prepare, func() (*house, error) { return o.openOnce(prepare, board) })
	if err != nil {
		for key := range want.Pods {
			o.locks.Release(key)
		}
		return Result{}, late("connecting to containerd", err)
	}
	if once.Begun != nil {
		once.Begun(h.runtime.Pulling)
	}
	if once.Timeout > 0 {
		once.Timeout = max(once.Timeout-time.Since(began), 1)
	}
	return h.once(ctx, once, want, board), nil
}

// TimeoutError says that the timeout was reached before any pod was run.
type TimeoutError struct {
	// Doing is the step that took too long.
	Doing string
	After time.Duration
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("not done within %s: %s; nothing was started", e.After, e.Doing)
}

// openOnce connects to the runtime and loads the image archives. If ctx ends meanwhile it closes
// everything again.
func (o Options) openOnce(ctx context.Context, board *board) (*house, error) {
	h, err := open(ctx, o, ownerOnce, board)
	if err != nil {
		return nil, err
	}
	h.loop.Rerun, h.loop.LogTries = true, onceLogTries
	if h.conn != nil {
		o.loadImages(ctx, h.conn.Driver)
	}
	if err := ctx.Err(); err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

// once runs the desired set and closes the house.
func (h *house) once(ctx context.Context, once OnceOptions, want manifest.Desired, board *board) Result {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	desired, ended := make(chan manifest.Desired, 1), make(chan struct{})
	go func() {
		defer close(ended)
		defer h.close()
		h.run(work, func(work context.Context, out chan<- manifest.Desired) { forward(work, desired, out) })
	}()
	send(work, desired, want)
	result := board.wait(ctx, once.Timeout, once.CleanupTimeout)
	keep := kept(want, result, once.Remove)
	remove, grace := ends(result, keep)
	runs := func() bool { return h.runs(remove) }
	heard := sync.OnceFunc(func() {
		if once.Interrupted != nil {
			once.Interrupted(result.stopped() || runs())
		}
	})
	if result.Interrupted {
		heard()
	}
	if once.Finished != nil {
		once.Finished(result)
	}
	bound := cleanup{
		begun: time.Now(), grace: grace, most: once.CleanupTimeout - result.settling,
		runs: runs, onInterrupt: heard, hurry: h.o.Hurry,
	}
	if !result.stopped() {
		bound.interrupted = ctx.Done()
	}
	waiting, enough := bound.begin()
	defer enough()
	if len(remove) > 0 {
		send(waiting, desired, keep)
		board.waitGone(waiting, remove)
	}
	result.Interrupted = result.Interrupted || ctx.Err() != nil
	result.Left = board.left(remove)
	if result.unsettled {
		result.Left = append(result.Left, board.unsettled(keep.Pods)...)
	}
	result.Removed = len(keep.Pods)+len(result.Left) == 0
	stop()
	select {
	case <-ended:
	case <-waiting.Done():
		h.o.Log.Debug("cleanup time is over; actions in progress are abandoned")
	}
	return result
}

// ends returns the pods that are to be removed, and the longest grace period of those that run.
func ends(r Result, keep manifest.Desired) (remove map[pod.Key]bool, grace time.Duration) {
	remove = map[pod.Key]bool{}
	for _, p := range r.Pods {
		if key := pod.KeyOf(p); keep.Pods[key] == nil {
			remove[key] = true
			grace = max(grace, graceOf(p))
		}
	}
	return remove, grace
}

// runs reports that a container of one of the pods runs, according to the last list.
func (h *house) runs(keys map[pod.Key]bool) bool {
	for key := range keys {
		runs := func(c pod.Container) bool { return c.State == pod.Running }
		if slices.ContainsFunc(h.relister.Seen(key).Containers, runs) {
			return true
		}
	}
	return false
}

// forward passes on desired sets until ctx ends.
func forward(ctx context.Context, in <-chan manifest.Desired, out chan<- manifest.Desired) {
	for {
		select {
		case d := <-in:
			send(ctx, out, d)
		case <-ctx.Done():
			return
		}
	}
}

func send(ctx context.Context, out chan<- manifest.Desired, d manifest.Desired) {
	select {
	case out <- d:
	case <-ctx.Done():
	}
}

// kept returns the desired set that stays after a run: all pods, unless Remove is set, the run was
// interrupted, or pods were not done in time.
func kept(want manifest.Desired, r Result, remove bool) manifest.Desired {
	// Keep the objects: the volumes of the pods that stay show them.
	d := manifest.Desired{Pods: map[pod.Key]*v1.Pod{}, Objects: want.Objects, Complete: true}
	if remove || r.stopped() {
		return d
	}
	stranded := r.Stranded()
	for _, p := range r.Pods {
		if key := pod.KeyOf(p); !stranded[key] && (!r.TimedOut || Done(p)) {
			d.Pods[key] = want.Pods[key]
		}
	}
	return d
}

// readOnce reads every source once. If a manifest cannot be used it returns an error, and nothing
// is run.
func readOnce(ctx context.Context, o Options) (manifest.Desired, error) {
	all, err := o.sources(cacheOptions{}, nil)
	if err != nil {
		return manifest.Desired{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	in := make(chan manifest.Desired)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	reading.Go(func() { read(ctx, all, nil, in, func(string, error) {}) })
	for {
		select {
		case <-ctx.Done():
			return manifest.Desired{}, ctx.Err()
		case d := <-in:
			bad := strangers(d)
			for _, p := range d.Problems {
				bad = append(bad, p.Err)
			}
			if d.Complete {
				bad = append(bad, missing(d)...)
			}
			switch {
			case len(bad) > 0:
				return d, &ManifestError{errors.Join(bad...)}
			case d.Complete && len(d.Pods) == 0:
				return d, &ManifestError{fmt.Errorf("no pod in %s", sourceNames(all))}
			case d.Complete:
				return d, nil
			}
		}
	}
}

// missing returns an error for each ConfigMap and Secret that a pod needs and no manifest has:
// under once it can never appear.
func missing(d manifest.Desired) []error {
	var errs []error
	for _, p := range d.Pods {
		for _, r := range d.Missing(p) {
			errs = append(errs, fmt.Errorf("%s: pod %s needs the %s %q, which no manifest has",
				manifest.OriginOf(p).Path, pod.KeyOf(p), r.Kind, r.Name))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs
}

// strangers returns an error for each pod that starts after a pod that no manifest has: it would
// wait for ever.
func strangers(d manifest.Desired) []error {
	var bad []error
	for _, p := range d.Pods {
		for _, key := range pod.After(p) {
			if d.Complete && d.Pods[key] == nil {
				bad = append(bad, &manifest.InvalidError{Errors: []manifest.FieldError{{
					File:  manifest.OriginOf(p).Path,
					Field: "metadata.annotations[" + pod.AnnotationAfter + "]",
					Key:   pod.KeyOf(p),
					Message: fmt.Sprintf("Not found: %q: no manifest of this run makes pod %s",
						p.Annotations[pod.AnnotationAfter], key),
				}}})
			}
		}
	}
	return bad
}

// ManifestError says that nothing was run because a manifest cannot be used. Its text has one error
// per line.
type ManifestError struct{ Err error }

func (e *ManifestError) Error() string { return e.Err.Error() }
func (e *ManifestError) Unwrap() error { return e.Err }

// Done reports that a pod has reached its result: a job has ended, a service is ready.
func Done(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodFailed || pod.Arrived(p)
}
