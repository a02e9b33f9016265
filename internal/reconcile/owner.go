package reconcile

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile/record"
	"podrun.io/podrun/internal/reconcile/revision"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/timeline"
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

// ownership acquires and releases one pod for this process, and publishes why it does not own it.
type ownership struct {
	key       pod.Key
	owners    Owners                  // nil: no other process runs pods
	ends      func(pod.Observed) bool // Options.Terminates
	publisher Publisher
	report    func(key pod.Key, why error) // Options.Troubled
	mailbox   *mailbox
	recorder  *record.Recorder
	log       *slog.Logger
	owns      bool          // this process owned the pod at the last check
	notOwner  *plan.Waiting // why this process does not own the pod; nil: it does, or not checked yet
	withheld  bool          // published as owned by a process that withholds its checkpoint
	began     timeline.Begins
	waits     *timeline.Open // recorded as waiting for the owner
	waitsFor  string         // what was recorded with it
}

// acquisition is the result of ownership.acquire.
type acquisition struct {
	acquired bool
	fresh    bool          // this process has just become the owner
	lost     bool          // this process owned the pod before, but not all the time since
	why      *plan.Waiting // why the pod is not acquired, if that is to be published
}

// acquire makes this process the pod's owner, or checks that it still is. The caller passes the
// result to publish.
func (o *ownership) acquire() (acquisition, error) {
	if o.owners == nil {
		return acquisition{acquired: true}, nil
	}
	holder, fresh, err := o.owners.Acquire(o.key)
	owned := o.owns
	switch {
	case errors.As(err, new(*LockError)):
		o.owns = false
		return acquisition{lost: owned, why: &plan.Waiting{Reason: reasonLock, Message: err.Error()}}, err
	case err != nil:
		return acquisition{}, err
	case holder != "":
		o.owns = false
		why := &plan.Waiting{Reason: reasonOwned, Message: "The pod is run by " + holder}
		return acquisition{lost: owned, why: why}, nil
	}
	o.owns = true
	return acquisition{acquired: true, fresh: fresh, lost: fresh && owned}, nil
}

// publish logs, records and publishes why this process does not own the pod, or that it owns it
// now.
func (o *ownership) publish(a acquisition) {
	switch {
	case a.why != nil:
		if (o.notOwner == nil || *o.notOwner != *a.why) && o.mailbox.pod() != nil {
			o.notOwner = a.why
			o.log.Warn("pod lock not acquired; retrying", "reason", a.why.Reason, "message", a.why.Message)
			o.recorder.Record("", record.Warning, a.why.Reason, a.why.Message)
		}
		if o.report != nil {
			o.report(o.key, errors.New(a.why.Message))
		}
		o.notOwned(a.why)
	case a.acquired && o.notOwner != nil:
		o.notOwner = nil
		o.log.Info("pod lock acquired")
		o.notOwned(nil)
	}
}

// notOwned publishes why this process does not own the pod, if a manifest names the pod. A nil why
// means that it does own it.
func (o *ownership) notOwned(why *plan.Waiting) {
	want := o.mailbox.pod()
	if want == nil {
		why = nil
	}
	o.recordWait(why)
	if err := o.publisher.NotOwned(o.key, want, why); err != nil {
		o.log.Warn("recording the pod's owner for podrun get failed", "err", err)
	}
}

// recordWait records in the timeline how long the pod waits for another owner, and for which one.
func (o *ownership) recordWait(why *plan.Waiting) {
	what := ""
	if why != nil {
		what = why.Reason + ": " + why.Message
	}
	if what == o.waitsFor {
		return
	}
	o.waits.End(nil)
	if o.waits, o.waitsFor = nil, what; what != "" {
		o.waits = o.began("", timeline.Waiting, what)
	}
}

// releaseWithheld handles an inspection that failed because another process keeps the pod's checkpoint
// (runtime.WithheldError): it publishes that owner and releases the pod. It reports whether the
// worker can end.
func (o *ownership) releaseWithheld(err error) (done bool) {
	withheld := (*runtime.WithheldError)(nil)
	if o.withheld = errors.As(err, &withheld); !o.withheld {
		return false
	}
	o.notOwned(&plan.Waiting{
		Reason: reasonOwned, Message: "The pod is run by " + withheld.Owner + ": " + withheld.Error(),
	})
	o.release()
	return o.mailbox.dismiss()
}

// inspected handles an inspection that succeeded: no process withholds the pod's checkpoint.
func (o *ownership) inspected() {
	if o.withheld {
		o.withheld = false
		o.notOwned(nil)
	}
}

// mustKeep reports that no manifest names the pod and that this process must not terminate it: it is
// left as it is.
func (o *ownership) mustKeep(s revision.State, seen pod.Observed) bool {
	return s.Pod == nil && o.ends != nil && !seen.Empty() && !o.ends(seen)
}

// release releases the pod, so that another process can own it.
func (o *ownership) release() {
	if o.owners != nil {
		o.owners.Release(o.key)
	}
}
