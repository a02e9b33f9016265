package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile/revision"
	"podrun.io/podrun/internal/runtime"
)

// Terminator sends signals to the instances of one pod and records when.
type Terminator struct {
	containers runtime.Containers
	instances  *Instances
	notes      *Notes
}

// signalTimeout limits the delivery of a signal. A shim that does not deliver it at once does not
// deliver it at all.
const signalTimeout = 10 * time.Second

// ErrLate marks a signal that was not delivered within signalTimeout.
var ErrLate = errors.New("the container's shim does not answer")

// Signal sends the instance of a a signal; "" is its stop signal. It saves the start of the grace period
// before it sends the signal. With it, it saves a probe or hook failure that is the reason for the
// termination, because the exit code does not show it. It saves that the stop signal was sent only
// afterwards: a signal that is saved as sent but was not would never be sent.
func (t *Terminator) Signal(
	ctx context.Context, st revision.State, seen pod.Observed, a plan.Terminate, signal string,
) error {
	id, signalled := a.ID, t.instances.signalled
	s := signalled[id]
	first := s == (pod.Signals{})
	if signal == "" && s.Asked.IsZero() {
		s.Asked, s.Alone = time.Now(), !a.Yields
		signalled[id] = s
	}
	if first && (signal == "" || t.notes.results.Of(seen)[id].Failed != nil) {
		t.notes.Save(st, seen, id)
	}
	if err := t.send(ctx, id, signal); err != nil {
		if first { // the termination has not begun
			if asked := signalled[id].Asked; isUncertain(err) {
				t.instances.unanswered[id] = asked
			}
			signalled[id] = pod.Signals{}
			t.notes.Save(st, seen, id)
		}
		return err
	}
	if signal != "" {
		s.Killed = time.Now()
	} else {
		s.Signalled = time.Now()
	}
	signalled[id] = s
	if signal == "" { // that it was killed need not be saved
		t.notes.Save(st, seen, id)
	}
	return nil
}

// isUncertain reports that a signal that has failed with err may have been delivered: it has no answer.
func isUncertain(err error) bool {
	for _, without := range []error{runtime.ErrUnavailable, ErrLate, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, without) {
			return true
		}
	}
	return false
}

// RenewGrace begins the grace period of an instance anew, whose pod ends. A hook that has begun, and a stop signal that
// was sent, are not repeated.
func (t *Terminator) RenewGrace(st revision.State, seen pod.Observed, id string) {
	s := t.instances.signalled[id]
	s.Asked, s.Alone = time.Now(), false
	t.instances.signalled[id] = s
	t.notes.Save(st, seen, id)
}

// send sends a signal and waits at most signalTimeout.
func (t *Terminator) send(ctx context.Context, id, signal string) error {
	limited, cancel := context.WithTimeout(ctx, signalTimeout)
	defer cancel()
	err := t.containers.SignalContainer(limited, id, signal)
	late := err != nil && ctx.Err() == nil && limited.Err() != nil
	t.instances.late[id] = late
	if late {
		err = fmt.Errorf("%w within %s: %w", ErrLate, signalTimeout, err)
	}
	return err
}
