package reconcile

import (
	"cmp"
	"context"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile/eviction"
	"podrun.io/podrun/internal/reconcile/execute"
	"podrun.io/podrun/internal/reconcile/lifecycle"
	"podrun.io/podrun/internal/reconcile/publish"
	"podrun.io/podrun/internal/reconcile/pull"
	"podrun.io/podrun/internal/reconcile/record"
	"podrun.io/podrun/internal/reconcile/revision"
	"podrun.io/podrun/internal/runtime"
)

// worker runs one pod name through all of its revisions. Only the goroutine of run accesses its
// fields, except for the mailbox.
type worker struct {
	key     pod.Key
	o       *Options
	shared  *shared
	mailbox *mailbox
	log     *slog.Logger

	state      revision.State
	manifests  *revision.Manifests
	life       *lifecycle.Lifecycle
	puller     *pull.Puller
	executor   *execute.Executor
	measure    *eviction.Measurement
	status     *publish.Status
	recorder   *record.Recorder
	failures   *record.Failures
	syncs      *record.Syncs
	owner      *ownership
	goroutines sync.WaitGroup // pulls, hooks and measurements
	// outdated reports that the pod has not been inspected since the last action, or since this
	// process acquired it.
	outdated bool
	// held reports that the pod has been on the machine, and has its reservation since.
	held bool
}

// refreshAgain is the delay before volumes, statuses and manifests that could not be saved are tried again.
const refreshAgain = time.Second

// run syncs the pod until ctx ends, or until the pod is neither desired nor there any more. Then it
// sends the worker to finished.
func (w *worker) run(ctx context.Context, finished chan<- *worker) {
	defer w.goroutines.Wait()
	// End before the worker is sent to finished: a successor for the same pod name may start right
	// after that, and must not lose what end gives back by name.
	end := sync.OnceFunc(w.end)
	defer end()
	// Wait for the first desired pod: without it the worker would take the pod for not desired.
	w.wait(ctx, 0)
	inspect := true
	for ctx.Err() == nil {
		wake, gone := w.sync(ctx, inspect)
		if gone && w.mailbox.empty() {
			end()
			select {
			case finished <- w:
			case <-ctx.Done():
			}
			return
		}
		inspect = w.wait(ctx, wake)
	}
}

// end gives back everything that the worker holds of shared resources.
func (w *worker) end() {
	w.life.Hooks.Stop()
	w.measure.Cancel()
	w.puller.Stop()
	w.shared.resources.Forget(w.key, w.mailbox)
	w.shared.order.Forget(w.mailbox)
	w.owner.release() // last: until then actions may still run on the pod
}

// wait returns when another sync is due. inspect reports that this sync must inspect the pod.
func (w *worker) wait(ctx context.Context, wake time.Duration) (inspect bool) {
	var timer <-chan time.Time
	if wake > 0 {
		timer = time.After(wake)
	}
	select {
	case <-ctx.Done():
	case <-timer:
		return true
	case <-w.puller.Tick(): // progress of a pull changes only the status: no inspection
	case <-w.mailbox.changed:
		return w.mailbox.inspects()
	case r := <-w.puller.Results:
		w.puller.Finished(w.state.Pod, r)
	case r := <-w.life.Hooks.Done:
		w.life.Hooks.Finished(r)
	case r := <-w.measure.Done:
		w.measure.Finished(r)
	}
	return false
}

// sync executes plans until a plan has no actions: it inspects the pod, computes the plan and
// executes it. inspect makes it inspect the pod before the first plan. It returns after what time to
// sync again (0: when notified) and whether the pod is gone.
func (w *worker) sync(ctx context.Context, inspect bool) (wake time.Duration, gone bool) {
	seen := w.o.Inspector.Seen(w.key)
	w.outdated = w.outdated || inspect
	for ctx.Err() == nil {
		inspected := false
		acquired, err := w.acquire()
		if err != nil {
			return w.syncs.Failed(err), false
		}
		if !acquired {
			return w.notOwner(seen)
		}
		if w.outdated {
			if seen, err = w.o.Inspector.Inspect(ctx, w.key); err != nil {
				return w.syncs.Failed(err), w.owner.releaseWithheld(err)
			}
			w.outdated, inspected = false, true
			w.owner.inspected()
		}
		if w.chooseRevision(seen); w.state.Undecided {
			return 0, false
		}
		if w.owner.mustKeep(w.state, seen) {
			if w.outdated = !inspected; w.outdated {
				continue // its owner may have been recorded since
			}
			return 0, true
		}
		w.life.Instances.Resume(seen)
		w.reserve(seen)
		w.state.Stale = w.executor.Refresh(ctx, w.state, seen)
		w.life.Hooks.Start(ctx, w.state, seen)
		w.measure.Start(ctx, w.state.Pod, seen)
		requests := w.readRequests()
		in, err := w.input(seen, requests)
		if err != nil {
			return w.syncs.Failed(err), false
		}
		p := plan.Compute(in)
		w.yield(seen, p)
		w.answer(requests, p)
		if !p.Again {
			if w.state.Replaced {
				w.status.ForgetConditions() // they were published of another pod
				w.mailbox.reread()          // its manifest could not be saved yet
				w.mailbox.Notify()
			}
			w.state.Earlier, w.state.Replaced = false, false
		}
		w.recorder.Plan(w.state.Pod, seen, p, w.failures.Last)
		w.state.Selection = w.state.Terminating(seen, p)
		w.status.Publish(w.state, seen, p, len(p.Actions) == 0, nil)
		w.failures.Never(p.Never)
		w.life.Notes.SaveProbes(w.state, seen)
		w.followLogs(seen)
		if len(p.Actions) == 0 {
			return w.idle(p)
		}
		wanted, stop := w.mailbox.whileWanted(ctx, w.state.Pod)
		w.state, inspect, err = w.executor.Perform(wanted, w.state, seen, p.Actions)
		over := wanted.Err() != nil && ctx.Err() == nil
		stop()
		// Nothing is executed before the next inspection: not everything that wakes a worker has
		// inspected the pod.
		w.outdated = inspect
		if err != nil && over {
			w.log.Debug("the pod is to end: an action was given up", "err", err)
			continue
		}
		if err != nil {
			w.status.Publish(w.state, seen, p, true, err)
			wake = w.syncs.Failed(err)
			if p.Wake > 0 { // what is due in the pod does not wait for the failed action
				wake = min(wake, max(p.Wake, record.FirstRetry))
			}
			return wake, false
		}
	}
	return 0, false
}

// notOwner returns when to sync again while another process owns the pod, and whether the worker can
// end.
func (w *worker) notOwner(seen pod.Observed) (wake time.Duration, gone bool) {
	switch {
	case w.mailbox.pod() != nil:
		return ownerPoll, false
	case !seen.Empty() && !w.shared.stops.Load(): // else it is the other's to terminate
		return unwantedPoll, false // this process may have to terminate it once the other releases it
	}
	return 0, w.mailbox.dismiss()
}

// idle returns when to sync again after a plan without actions, and whether the pod is gone.
func (w *worker) idle(p plan.Plan) (wake time.Duration, gone bool) {
	w.syncs.Succeeded()
	if w.state.Stale || w.state.Unsaved || w.status.Unpublished() {
		p.Wake = sooner(p.Wake, refreshAgain)
	}
	if !p.Completed {
		p.Wake = sooner(p.Wake, w.measure.Next())
	}
	return p.Wake, p.Gone && !w.status.Unpublished()
}

// acquire makes this process the pod's owner, or checks that it still is. Without ownership nothing
// is done to the pod, not even recorded.
func (w *worker) acquire() (acquired bool, err error) {
	a, err := w.owner.acquire()
	if a.lost {
		w.stopAll()
	}
	w.outdated = w.outdated || a.fresh
	w.owner.publish(a)
	return a.acquired, err
}

// stopAll stops everything that this process does for a pod that it no longer owns, and drops its
// cached state.
func (w *worker) stopAll() {
	w.life.Hooks.Stop()
	w.measure.Reset(nil)
	w.puller.Stop()
	w.status.Forget()
	w.manifests.Forget()
	w.mailbox.reread() // another revision may be running now
}

// chooseRevision chooses the pod revision that this worker runs, from the newest desire. It does
// nothing if that has not changed since.
func (w *worker) chooseRevision(seen pod.Observed) {
	if w.state.Unsaved {
		w.mailbox.reread()
	}
	if w.mailbox.remounts() {
		w.failures.Retry(pod.ReasonFailedMount, runtime.ReasonConfig)
	}
	d, unread := w.mailbox.read()
	if !unread {
		return
	}
	w.learn(d.objects)
	before := w.state.Pod
	running := w.manifests.Running(before, seen)
	in := plan.RevisionInput{Wanted: d.pod, Running: running, Observed: seen}
	// A pod of a manifest has been judged when that was read. One that was made from a record, such as that of a
	// CronJob's Job, was judged by what the policy was then.
	if judged := cmp.Or(d.pod, running); judged != nil && w.o.Refusal != nil {
		in.Refused = w.o.Refusal(judged)
	}
	if d.pod != nil && running != nil {
		if seen.Owner != "" && seen.Owner != w.o.Owner {
			w.log.Info("adopting a pod that another podrun command started", "command", seen.Owner)
		}
		if manifest.SameRun(running, d.pod) {
			in.Adopted, in.Resized = manifest.Adopt(d.pod, running, w.final(running, seen))
		}
	}
	w.state = next(w.state, d, in)
	w.state.Unsaved = in.Adopted != nil && !w.manifests.Update(w.state)
	if p := w.state.Pod; before == nil || p == nil || before.UID != p.UID || w.state.Replaced {
		w.puller.Stop()
		clear(w.failures.Last)
	}
	w.recorder.Manifest(w.state)
}

// learn stores the current objects. It clears the failures that a missing object may have caused,
// so that these are tried again at once.
func (w *worker) learn(now pod.Objects) {
	if reflect.DeepEqual(w.state.Objects, now) {
		return
	}
	w.failures.Retry(runtime.ReasonConfig, pod.ReasonFailedMount)
	if p := w.state.Pod; p != nil && len(p.Spec.ImagePullSecrets) > 0 {
		w.failures.Retry(plan.ReasonErrImagePull)
	}
	w.state.Objects, w.state.Stale = now, true
}

func (w *worker) followLogs(seen pod.Observed) {
	for _, c := range seen.Containers {
		if c.State == pod.Running {
			w.o.Logs.Follow(c.Instance(w.key), c.PID)
		}
	}
}

// sooner returns the shorter of two waits, where 0 means no wait is due.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
