package agent

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"podrun.io/podrun/internal/agent/deadline"
	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/agent/problems"
	"podrun.io/podrun/internal/agent/result"
	"podrun.io/podrun/internal/agent/sources"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
)

// OnceOptions are the options of Once.
type OnceOptions = result.Options

// onceLogTries makes once retry a log without disk space for seven seconds and then continue:
// otherwise the caller could wait for the result without end. What is left to do after that fits
// into DefaultCleanupTimeout.
const onceLogTries = 4

// Once runs the pods of all sources once and waits until each is done. When ctx ends first, it
// stops the pods; at the timeout, it stops those that are not done. Once returns soon after that
// even if something hangs; what it has begun may then continue until the process exits.
func Once(ctx context.Context, o Options, once OnceOptions) (result.Result, error) {
	once.CleanupTimeout = cmp.Or(once.CleanupTimeout, result.DefaultCleanupTimeout)
	began, prepare := time.Now(), ctx
	if once.Timeout > 0 {
		var enough context.CancelFunc
		prepare, enough = context.WithTimeout(ctx, once.Timeout)
		defer enough()
	}
	late := func(doing string, err error) error {
		if ctx.Err() == nil && prepare.Err() != nil {
			return &deadline.TimeoutError{Doing: doing, After: once.Timeout}
		}
		return err
	}
	from := o.opener()
	read, err := deadline.Promptly(prepare, func() (*sources.Once, error) { return from.ReadOnce(prepare) })
	if err != nil {
		return result.Result{}, late("reading manifests", err)
	}
	want := read.Desired
	new(problems.Log).Report(o.Log, want)
	if once.Desired != nil {
		if err := once.Desired(want); err != nil {
			return result.Result{}, err
		}
	}
	locks := o.newLocks(owner.Once)
	if err := locks.AcquireAll(prepare, slices.SortedFunc(maps.Keys(want.Pods), pod.Key.Compare)...); err != nil {
		return result.Result{}, late("locking the pods", err)
	}
	pods := result.NewCollector(status.NewFiles(o.Dirs), want, once.Progress)
	read.Record.Publisher = pods
	as := role{owner: owner.Once, locks: locks, publisher: read.Record, troubled: pods.Troubled, stuck: pods.Stuck}
	a, err := deadline.Promptly(prepare, func() (*agent, error) { return o.openOnce(prepare, as) })
	if err != nil {
		for key := range want.Pods {
			locks.Release(key)
		}
		return result.Result{}, late("connecting to containerd", err)
	}
	pods.WatchPulls(a.runtime.Pulling)
	pods.Observe(a.relister.Seen)
	if once.Begun != nil {
		once.Begun(a.runtime.Pulling)
	}
	if once.Timeout > 0 {
		once.Timeout = max(once.Timeout-time.Since(began), 1)
	}
	return a.once(ctx, once, read, pods), nil
}

// openOnce connects to the runtime and loads the image archives. If ctx ends meanwhile it closes
// everything again.
func (o Options) openOnce(ctx context.Context, as role) (*agent, error) {
	a, err := open(ctx, o, as)
	if err != nil {
		return nil, err
	}
	a.loop.Rerun, a.loop.KeepVolumes, a.loop.LogTries = true, true, onceLogTries
	if a.conn != nil {
		o.archives().Load(ctx, a.conn.Driver)
	}
	if err := ctx.Err(); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

// once runs the desired set and closes the agent.
func (a *agent) once(ctx context.Context, once OnceOptions, read *sources.Once, pods *result.Collector) result.Result {
	a.loop.Removing, a.loop.Timeline = once.Removing, once.Timeline
	a.loop.Terminates = read.Recall(a.runtime.Store(), a.loop.Boot, a.loop.Wall, a.o.Log)
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	desired, ended := make(chan manifest.Desired, 1), make(chan struct{})
	go func() {
		defer close(ended)
		defer a.close()
		a.run(work, desired, func(context.Context) {})
		a.conn.KeepWarm()
	}()
	enough := read.Follow(work, pods.SetDesired, desired)
	outcome := pods.Wait(ctx, once)
	enough()
	keep := outcome.Kept(pods.Desired(), once.Remove)
	grace := outcome.Ends(keep)
	for _, p := range outcome.Unfinished() {
		a.runtime.RetainLogs(p.UID)
	}
	runs := func() bool { return a.runs(outcome.Stops) }
	heard := sync.OnceFunc(func() {
		if once.Interrupted != nil {
			once.Interrupted(outcome.Stopped() || runs())
		}
	})
	if outcome.Interrupted {
		heard()
	}
	if once.Finished != nil {
		once.Finished(outcome)
	}
	bound := deadline.Cleanup{
		Begun: time.Now(), Grace: grace, Most: once.CleanupTimeout - outcome.Settling,
		Runs: runs, OnInterrupt: heard, Hurry: a.o.Hurry,
	}
	if !outcome.Stopped() {
		bound.Interrupted = ctx.Done()
	}
	waiting, cancel := bound.Begin()
	defer cancel()
	if len(outcome.Stops) > 0 {
		send(waiting, desired, keep)
		pods.WaitGone(waiting, outcome.Stops)
	}
	outcome.Interrupted = outcome.Interrupted || ctx.Err() != nil
	outcome.Left = pods.Left(outcome.Stops)
	if outcome.Unsettled {
		outcome.Left = append(outcome.Left, pods.Unsettled(keep.Pods)...)
	}
	outcome.Removed = len(keep.Pods)+len(outcome.Left) == 0
	stop()
	select {
	case <-ended:
	case <-waiting.Done():
		a.o.Log.Debug("cleanup time is over; actions in progress are abandoned")
	}
	return outcome
}

// runs reports that a container of one of the pods runs, according to the last list.
func (a *agent) runs(keys map[pod.Key]bool) bool {
	for key := range keys {
		if result.Runs(a.relister.Seen(key)) {
			return true
		}
	}
	return false
}
