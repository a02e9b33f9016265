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

// Owners ensures that only one process at a time works on a pod.
type Owners interface {
	// Acquire makes this process the pod's owner until Release or until the process exits. If
	// another process owns the pod, holder describes that process for people; else holder is "".
	// fresh reports that this process has just become the owner, so that earlier observations of
	// the pod may be outdated. The status of the pod shows a *LockError.
	Acquire(key pod.Key) (holder string, fresh bool, err error)
	// Release gives up the ownership of the pod.
	Release(key pod.Key)
}

// LockError means that the lock of a pod cannot be taken by any process.
type LockError struct {
	Key pod.Key
	Err error
}

func (e *LockError) Error() string { return fmt.Sprintf("locking pod %s: %v", e.Key, e.Err) }
func (e *LockError) Unwrap() error { return e.Err }

// ownerPoll is how often the worker tries to acquire a pod that another process owns.
const ownerPoll = 500 * time.Millisecond

// unwantedPoll is the same for a pod that no manifest names.
const unwantedPoll = 10 * time.Second

// The reasons why this process must not work on a pod.
const (
	reasonOwned = "OwnedByOther"
	reasonLock  = "FailedLock"
)

// acquire makes this process the pod's owner, or checks that it still is. Without ownership nothing
// is done to the pod, not even recorded.
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
	if fresh && w.owns { // another process may have owned it meanwhile
		w.lose()
	}
	w.owns, w.outdated = true, w.outdated || fresh
	if w.barred != nil {
		w.barred = nil
		w.log.Info("pod lock acquired")
		w.notOwned(nil)
	}
	return true, nil
}

// notAcquired logs, records and publishes why this process does not own the pod.
func (w *worker) notAcquired(why plan.Waiting) {
	if w.owns {
		w.lose()
	}
	if (w.barred == nil || *w.barred != why) && w.mailbox.pod() != nil {
		w.barred = &why
		w.log.Warn("pod lock not acquired; retrying", "reason", why.Reason, "message", why.Message)
		w.recorder.record("", warning, why.Reason, why.Message)
	}
	if w.o.Troubled != nil {
		w.o.Troubled(w.key, errors.New(why.Message))
	}
	w.notOwned(&why)
}

// lose stops everything that this process does for a pod that it no longer owns, and drops its
// cached state.
func (w *worker) lose() {
	w.owns = false
	w.hooks.unset()
	w.measure.reset(nil)
	w.hooks.results.hooks.prune(nil)
	w.puller.stop()
	w.shown, w.before, w.manifests.saved = nil, nil, nil
	w.mailbox.reread() // another revision may be running now
}

// notOwned publishes why this process does not own the pod, if a manifest names the pod. A nil why
// means that it does own it.
func (w *worker) notOwned(why *plan.Waiting) {
	want := w.mailbox.pod()
	if want == nil {
		why = nil
	}
	if err := w.o.Publisher.NotOwned(w.key, want, why); err != nil {
		w.log.Warn("recording the pod's owner for podrun get failed", "err", err)
	}
}

// leave handles an inspection that failed because another process keeps the pod's checkpoint
// (runtime.WithheldError): it publishes that owner and releases the pod. It reports whether this
// worker can end.
func (w *worker) leave(err error) (done bool) {
	withheld := (*runtime.WithheldError)(nil)
	if w.withheld = errors.As(err, &withheld); !w.withheld {
		return false
	}
	w.notOwned(&plan.Waiting{
		Reason: reasonOwned, Message: "The pod is run by " + withheld.Owner + ": " + withheld.Error(),
	})
	w.letGo()
	return w.mailbox.dismiss()
}

// foreign reports that no manifest names the pod and that this process must not terminate it: it is
// left as it is.
func (w *worker) foreign(seen pod.Observed) bool {
	return w.state.pod == nil && w.o.Adopts != nil && !seen.Empty() && !w.o.Adopts(seen)
}

// letGo releases the pod, so that another process can own it.
func (w *worker) letGo() {
	if w.o.Owners != nil {
		w.o.Owners.Release(w.key)
	}
}

// inspect inspects the pod.
func (w *worker) inspect(ctx context.Context) (pod.Observed, error) {
	return w.o.Inspector.Inspect(ctx, w.key)
}
