package reconcile

import (
	"context"
	"errors"
	"time"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// Owners gives each pod to one process at a time.
type Owners interface {
	// Acquire makes this process the pod's owner, for as long as it lives or until Release. holder says, for people,
	// which process has the pod; "": this one. fresh says that this process has just come to have it, so that what is
	// known of the pod may be out of date.
	Acquire(key pod.Key) (holder string, fresh bool, err error)
	// Release lets another process have the pod.
	Release(key pod.Key)
}

// ownerPoll is how often it is tried to have a pod that another process has.
const ownerPoll = 500 * time.Millisecond

// reasonOwned is why a pod is not this process's to touch.
const reasonOwned = "OwnedByOther"

// acquire makes this process the pod's owner. Without it nothing is done to the pod, not even recorded.
func (w *worker) acquire() (acquired, fresh bool, err error) {
	if w.o.Owners == nil {
		return true, false, nil
	}
	holder, fresh, err := w.o.Owners.Acquire(w.key)
	if err != nil {
		return false, false, err
	}
	if holder == "" {
		if w.holder != "" {
			w.holder = ""
			w.log.Info("this process has the pod now")
			w.notOwned(nil)
		}
		return true, fresh, nil
	}
	if holder != w.holder && w.named() {
		w.holder = holder
		w.log.Warn("another process has the pod; waiting for it", "holder", holder)
		w.tell("", warning, reasonOwned, "The pod is run by "+holder)
	}
	w.notOwned(&plan.Waiting{Reason: reasonOwned, Message: "The pod is run by " + holder})
	return false, false, nil
}

// notOwned publishes that another process has the pod, if a manifest names it; nil: none has.
func (w *worker) notOwned(why *plan.Waiting) {
	w.mu.Lock()
	want := w.want
	w.mu.Unlock()
	reason := ""
	if why != nil && want != nil {
		reason = why.Message
	}
	if err := w.o.Publisher.NotOwned(w.key, want, reason); err != nil {
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
	w.took = w.turn
	return true
}

// foreign reports that no manifest names the pod and that it is not this process's to end: it is left as it is.
func (w *worker) foreign(seen pod.Observed) bool {
	return w.pod == nil && w.o.Takes != nil && !seen.Empty() && !w.o.Takes(seen)
}

// letGo lets another process have the pod.
func (w *worker) letGo() {
	if w.o.Owners != nil {
		w.o.Owners.Release(w.key)
	}
}

// look inspects the pod.
func (w *worker) look(ctx context.Context) (pod.Observed, error) { return w.o.Looker.Look(ctx, w.key) }
