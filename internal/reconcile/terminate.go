package reconcile

import (
	"context"
	"slices"
	"time"

	"podrun.io/podrun/internal/pod"
)

// signal sends a signal and records when. It saves the start of the grace period before it sends
// the signal. With it, it saves a probe or hook failure that is the reason for the termination,
// because the exit code does not show it. It saves that the stop signal was sent only afterwards: a
// signal that is saved as sent but was not would never be sent.
func (w *worker) signal(ctx context.Context, seen pod.Observed, id, signal string) error {
	s := w.signalled[id]
	first := s == (pod.Signals{})
	if signal == "" && s.Asked.IsZero() {
		s.Asked = time.Now()
		w.signalled[id] = s
	}
	if first && (signal == "" || w.probed(seen)[id].Failed != nil) {
		w.note(seen, id)
	}
	if err := w.signalInTime(ctx, id, signal); err != nil {
		if first { // the termination has not begun
			w.signalled[id] = pod.Signals{}
			w.note(seen, id)
		}
		return err
	}
	if signal != "" {
		s.Killed = time.Now()
	} else {
		s.Signalled = time.Now()
	}
	w.signalled[id] = s
	if signal == "" { // that it was killed need not be saved
		w.note(seen, id)
	}
	return nil
}

// note saves an instance's state in the checkpoint. So after a restart podrun does not repeat its
// postStart hook or its grace period, and does not take a failure for a completion.
func (w *worker) note(seen pod.Observed, id string) {
	for _, c := range seen.Containers {
		if c.ID != id {
			continue
		}
		probed := w.probed(seen)[id]
		n := pod.Notes{
			Started: c.Notes.Started, Ready: c.Notes.Ready, Since: c.Notes.Since, PostStartDue: w.postStartLeft(c),
			Signals: w.recordedSignals(id), Failed: probed.Failed, Unwanted: w.state.unwants(c),
		}
		if found, asked := w.o.Prober.Results(w.key)[id]; asked && (found.Started != nil || found.Ready != nil) {
			n.Started, n.Ready, n.Since = found.Started, found.Ready, w.clock.wall().UTC()
		}
		if err := w.o.Data.Note(c.UID, id, n); err != nil {
			w.log.Warn("saving the container state failed; a restarted podrun may repeat hooks and the grace period",
				"container", c.Name, "err", err)
		}
	}
}

// recordedSignals returns what was sent to an instance, in wall times.
func (w *worker) recordedSignals(id string) pod.Signals {
	s := w.signalled[id]
	for _, at := range []*time.Time{&s.Asked, &s.Hooked, &s.Signalled, &s.Killed} {
		*at = w.clock.recorded(*at)
	}
	return s
}

// ending reports that the termination of an instance has begun.
func (w *worker) ending(seen pod.Observed) bool {
	return slices.ContainsFunc(seen.Containers, func(c pod.Container) bool {
		return w.signalled[c.ID] != (pod.Signals{})
	})
}

// signals returns what was sent to an instance, by this process or as the checkpoint says.
func (w *worker) signals(c pod.Container) pod.Signals {
	if s, known := w.signalled[c.ID]; known {
		return s
	}
	s := c.Notes.Signals
	for _, at := range []*time.Time{&s.Asked, &s.Hooked, &s.Signalled, &s.Killed} {
		*at = w.clock.monotonic(c.ID, *at)
	}
	return s
}

// resume continues the terminations that an earlier podrun process began.
func (w *worker) resume(seen pod.Observed) {
	for _, c := range seen.Containers {
		if s := w.signals(c); !c.Reaped && s != (pod.Signals{}) {
			w.signalled[c.ID] = s
		}
	}
}
