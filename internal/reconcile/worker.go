package reconcile

import (
	"context"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
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

	state     state
	manifests *manifests
	measure   *measurement
	failures  *failures
	hooks     *hookRunner
	instances *instances
	starter   *starter
	executor  *executor
	beside    sync.WaitGroup // pulls, hooks and measurements
	trouble   *trouble
	recorder  *recorder
	puller    *puller
	status    *statusPublisher
	owner     *ownership
	// outdated reports that the pod has not been inspected since the last action, or since this
	// process acquired it.
	outdated bool
}

// refreshAgain is the delay before volumes and statuses that could not be updated are tried again.
const refreshAgain = time.Second

// run syncs the pod until ctx ends, or until the pod is neither desired nor there any more. Then it
// sends the worker to finished.
func (w *worker) run(ctx context.Context, finished chan<- *worker) {
	defer w.beside.Wait()
	// End before the worker is sent to finished: a successor for the same pod name may start right
	// after that, and must not lose what end gives back by name.
	end := sync.OnceFunc(w.end)
	defer end()
	// Wait for the first desire: without it the worker would take the pod for not desired.
	w.wait(ctx, 0)
	look := true
	for ctx.Err() == nil {
		wake, gone := w.sync(ctx, look)
		if gone && w.mailbox.empty() {
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

// end gives back everything that the worker holds of shared resources.
func (w *worker) end() {
	w.hooks.stop()
	w.measure.cancel()
	w.puller.stop()
	w.shared.resources.Forget(w.key, w.mailbox)
	w.shared.order.Forget(w.mailbox)
	w.owner.release() // last: until then actions may still run on the pod
}

// wait returns when another sync is due. look reports that this sync must inspect the pod.
func (w *worker) wait(ctx context.Context, wake time.Duration) (look bool) {
	var timer <-chan time.Time
	if wake > 0 {
		timer = time.After(wake)
	}
	select {
	case <-ctx.Done():
	case <-timer:
		return true
	case <-w.puller.tick(): // progress of a pull changes only the status: no inspection
	case <-w.mailbox.changed:
	case r := <-w.puller.results:
		w.puller.finished(w.state.pod, r)
	case r := <-w.hooks.done:
		w.hooks.finished(r)
	case r := <-w.measure.done:
		w.measure.finished(r)
	}
	return false
}

// sync executes plans until a plan has no actions: it inspects the pod, computes the plan and
// executes it. look makes it inspect the pod before the first plan. It returns after what time to
// sync again (0: when notified) and whether the pod is gone.
func (w *worker) sync(ctx context.Context, look bool) (wake time.Duration, gone bool) {
	seen := w.o.Inspector.Seen(w.key)
	w.outdated = w.outdated || look
	for ctx.Err() == nil {
		looked := false
		acquired, err := w.acquire()
		if err != nil {
			return w.trouble.failed(err), false
		}
		if !acquired {
			return w.barred(seen)
		}
		if w.outdated {
			if seen, err = w.o.Inspector.Inspect(ctx, w.key); err != nil {
				return w.trouble.failed(err), w.owner.leave(err)
			}
			w.outdated, looked = false, true
			w.owner.inspected()
		}
		if w.chooseRevision(seen); w.state.unsure {
			return 0, false
		}
		if w.owner.foreign(w.state, seen) {
			if w.outdated = !looked; w.outdated {
				continue // its owner may have been recorded since
			}
			return 0, true
		}
		w.instances.resume(seen)
		w.account(seen)
		w.state.stale = w.starter.refresh(ctx, w.state, seen)
		w.hooks.start(ctx, w.state, seen)
		w.measure.start(ctx, w.state.pod, seen)
		p := plan.Compute(w.input(seen))
		if !p.Again {
			if w.state.replaced {
				w.status.before = nil // it was published of another pod
			}
			w.state.earlier, w.state.replaced = false, false
		}
		w.recorder.recordPlan(w.state.pod, seen, p, w.failures.last)
		w.state = w.state.terminating(seen, p)
		w.status.publish(w.state, seen, p, len(p.Actions) == 0)
		w.hooks.notes.saveProbes(w.state, seen)
		w.followLogs(seen)
		if len(p.Actions) == 0 {
			return w.rest(p)
		}
		w.state, look, err = w.executor.perform(ctx, w.state, seen, p.Actions)
		// Nothing is executed before the next inspection: not everything that wakes a worker has
		// inspected the pod.
		w.outdated = look
		if err != nil {
			w.status.publish(w.state, seen, p, true)
			wake = w.trouble.failed(err)
			if p.Wake > 0 { // what is due in the pod does not wait for the failed action
				wake = min(wake, max(p.Wake, firstTrouble))
			}
			return wake, false
		}
	}
	return 0, false
}

// barred returns when to sync again while another process owns the pod, and whether the worker can
// end.
func (w *worker) barred(seen pod.Observed) (wake time.Duration, gone bool) {
	switch {
	case w.mailbox.pod() != nil:
		return ownerPoll, false
	case !seen.Empty():
		return unwantedPoll, false // this process may have to terminate it once the other releases it
	}
	return 0, w.mailbox.dismiss()
}

// rest returns when to sync again after a plan without actions, and whether the pod is gone.
func (w *worker) rest(p plan.Plan) (wake time.Duration, gone bool) {
	w.trouble.count, w.trouble.logged = 0, nil
	if w.state.stale || w.status.unpublished {
		p.Wake = sooner(p.Wake, refreshAgain)
	}
	if !p.Completed {
		p.Wake = sooner(p.Wake, w.measure.next())
	}
	return p.Wake, p.Gone && !w.status.unpublished
}

// acquire makes this process the pod's owner, or checks that it still is. Without ownership nothing
// is done to the pod, not even recorded.
func (w *worker) acquire() (acquired bool, err error) {
	a, err := w.owner.acquire()
	if a.lost {
		w.lose()
	}
	w.outdated = w.outdated || a.fresh
	w.owner.publish(a)
	return a.acquired, err
}

// lose stops everything that this process does for a pod that it no longer owns, and drops its
// cached state.
func (w *worker) lose() {
	w.hooks.stop()
	w.measure.reset(nil)
	w.puller.stop()
	w.status.shown, w.status.before = nil, nil
	w.manifests.saved = nil
	w.mailbox.reread() // another revision may be running now
}

// chooseRevision chooses the pod revision that this worker runs, from the newest desire. It does
// nothing if that has not changed since.
func (w *worker) chooseRevision(seen pod.Observed) {
	d, unread := w.mailbox.read()
	if !unread {
		return
	}
	w.learn(d.objects)
	before := w.state.pod
	c := choice{desire: d, seen: seen, running: w.manifests.running(before, seen)}
	if d.pod != nil && c.running != nil {
		if seen.Owner != "" && seen.Owner != w.o.Owner {
			w.log.Info("adopting a pod that another podrun command started", "command", seen.Owner)
		}
		c.same = manifest.SameRun(c.running, d.pod)
		c.final = c.same && w.final(c.running, seen)
	}
	w.state = c.next(w.state)
	if c.same {
		w.manifests.update(w.state.pod)
	}
	if p := w.state.pod; before == nil || p == nil || before.UID != p.UID || w.state.replaced {
		w.puller.stop()
		clear(w.failures.last)
	}
	w.recorder.recordManifest(w.state)
}

// learn stores the current objects. It clears the failures that a missing object may have caused,
// so that these are tried again at once.
func (w *worker) learn(now pod.Objects) {
	if reflect.DeepEqual(w.state.objects, now) {
		return
	}
	w.failures.retry(reasonConfig, runtime.ReasonFailedMount)
	if p := w.state.pod; p != nil && len(p.Spec.ImagePullSecrets) > 0 {
		w.failures.retry(plan.ReasonErrImagePull)
	}
	w.state.objects, w.state.stale = now, true
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
