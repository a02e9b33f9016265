package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// Owners gives each pod to one process at a time.
type Owners interface {
	// Acquire makes this process the pod's owner, for as long as it lives or until Release. holder says, for people,
	// which process has the pod; "": this one. fresh says that this process has just come to have it, so that what is
	// known of the pod may be out of date. A *LockError is shown on the pod.
	Acquire(key pod.Key) (holder string, fresh bool, err error)
	// Release lets another process have the pod.
	Release(key pod.Key)
}

// LockError says that nobody can have a pod, as its lock is.
type LockError struct {
	Key pod.Key
	Err error
}

func (e *LockError) Error() string { return fmt.Sprintf("locking pod %s: %v", e.Key, e.Err) }
func (e *LockError) Unwrap() error { return e.Err }

// ownerPoll is how often it is tried to have a pod that another process has.
const ownerPoll = 500 * time.Millisecond

// unwantedPoll is the same of a pod that no manifest names.
const unwantedPoll = 10 * time.Second

// The reasons why a pod is not this process's to touch.
const (
	reasonOwned = "OwnedByOther"
	reasonLock  = "FailedLock"
)

// acquire makes this process the pod's owner, or sees that it still is. Without it nothing is done to the pod, not even
// recorded.
func (w *worker) acquire() (acquired bool, err error) {
	if w.o.Owners == nil {
		return true, nil
	}
	holder, fresh, err := w.o.Owners.Acquire(w.key)
	switch {
	case errors.As(err, new(*LockError)):
		w.notAcquired(plan.Waiting{Reason: reasonLock, Message: err.Error()})
		return false, err
	case err != nil:
		return false, err
	case holder != "":
		w.notAcquired(plan.Waiting{Reason: reasonOwned, Message: "The pod is run by " + holder})
		return false, nil
	}
	if fresh && w.owns { // another process may have had it meanwhile
		w.lose()
	}
	w.owns, w.outdated = true, w.outdated || fresh
	if w.barred != nil {
		w.barred = nil
		w.log.Info("this process has the pod now")
		w.notOwned(nil)
	}
	return true, nil
}

// notAcquired makes known why this process has not got the pod.
func (w *worker) notAcquired(why plan.Waiting) {
	if w.owns {
		w.lose()
	}
	if (w.barred == nil || *w.barred != why) && w.named() {
		w.barred = &why
		w.log.Warn("this process has not got the pod; waiting for it", "reason", why.Reason, "message", why.Message)
		w.record("", warning, why.Reason, why.Message)
	}
	if w.o.Troubled != nil {
		w.o.Troubled(w.key, errors.New(why.Message))
	}
	w.notOwned(&why)
}

// lose ends what this process does for a pod that it has no longer, and forgets what it knew of it.
func (w *worker) lose() {
	w.owns = false
	w.targets = nil
	w.o.Prober.Set(w.key, nil)
	w.measure.cancel()
	w.measure = measure{done: w.measure.done, cancel: func() {}}
	w.hooks.keep(nil)
	w.stopPulls()
	w.shown, w.before, w.saved = nil, nil, nil
	w.chosenVersion = -1 // what runs may be another revision
}

// notOwned publishes why this process has not got the pod, if a manifest names it; nil: it has it.
func (w *worker) notOwned(why *plan.Waiting) {
	w.mu.Lock()
	want := w.want
	w.mu.Unlock()
	if want == nil {
		why = nil
	}
	if err := w.o.Publisher.NotOwned(w.key, want, why); err != nil {
		w.log.Warn("get cannot show whether another process has the pod", "err", err)
	}
}

// named reports that a manifest names the pod.
func (w *worker) named() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.want != nil
}

// leave shows whose a pod is that could not be inspected for that reason, and lets them have it. It reports whether this
// process is done with it.
func (w *worker) leave(err error) (done bool) {
	withheld := (*runtime.WithheldError)(nil)
	if w.withheld = errors.As(err, &withheld); !w.withheld {
		return false
	}
	w.notOwned(&plan.Waiting{
		Reason: reasonOwned, Message: "The pod is run by " + withheld.Owner + ": " + withheld.Error(),
	})
	w.letGo()
	return w.unwantedByAll()
}

// unwantedByAll reports that no manifest names the pod, which another process has: it is not this one's business.
func (w *worker) unwantedByAll() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.want != nil {
		return false
	}
	w.chosenVersion = w.version
	return true
}

// foreign reports that no manifest names the pod and that it is not this process's to end: it is left as it is.
func (w *worker) foreign(seen pod.Observed) bool {
	return w.pod == nil && w.o.Adopts != nil && !seen.Empty() && !w.o.Adopts(seen)
}

// letGo lets another process have the pod.
func (w *worker) letGo() {
	if w.o.Owners != nil {
		w.o.Owners.Release(w.key)
	}
}

// inspect inspects the pod.
func (w *worker) inspect(ctx context.Context) (pod.Observed, error) {
	return w.o.Inspector.Inspect(ctx, w.key)
}
