package reconcile

import (
	"context"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// Turns keep podruns that want the same pod, as two of once or one beside serve, from doing something to it at the same
// time, and on the ground of what another has changed since.
type Turns interface {
	// Begun counts the beginnings and ends of turns at a pod.
	Begun(key pod.Key) int64
	// Take waits until nobody is at the pod and takes a turn, which done ends; done returns the count as it is then.
	// If it was not since, it takes none and done is nil: what was seen at that time is out of date.
	Take(ctx context.Context, key pod.Key, since int64) (done func() int64, err error)
	// Forget lets go of what is kept of a pod that is gone.
	Forget(key pod.Key)
}

// look inspects the pod, and knows from then on whether another podrun does something to it.
func (w *worker) look(ctx context.Context) (pod.Observed, error) {
	if w.o.Turns != nil {
		w.turns = w.o.Turns.Begun(w.key) // before the look: what comes between the two makes it out of date
	}
	return w.o.Looker.Look(ctx, w.key)
}

// inTurn performs the actions, unless another podrun has done something to the pod since it was seen: then it is looked at
// and judged again.
func (w *worker) inTurn(ctx context.Context, seen pod.Observed, actions []plan.Action) (look bool, err error) {
	if w.o.Turns != nil {
		done, err := w.o.Turns.Take(ctx, w.key, w.turns)
		if err != nil || done == nil {
			return true, err
		}
		defer func() { w.turns = done() }()
	}
	return w.perform(ctx, seen, actions)
}
