package reconcile

import (
	"context"
	"slices"
	"time"

	"podrun.io/podrun/internal/pod"
)

// signal sends a signal and keeps when it was sent. That the grace period begins is noted down before it, and
// so is a verdict that had the instance ended, because the code that the instance makes of its end does not tell
// it; that it was told, after it, because a signal that was noted down and not sent would never be.
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
		if first { // it has not begun, then
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
	if signal == "" { // what was killed need not be known to have been
		w.note(seen, id)
	}
	return nil
}

// note notes down what an instance has come to, so that the next podrun neither runs its postStart hook nor gives it
// its grace period again, nor takes a failure for a completion.
func (w *worker) note(seen pod.Observed, id string) {
	for _, c := range seen.Containers {
		if c.ID != id {
			continue
		}
		probed := w.probed(seen)[id]
		n := pod.Notes{
			Started: c.Notes.Started, Ready: c.Notes.Ready, Since: c.Notes.Since, PostStartDue: w.postStartLeft(c),
			Signals: w.recordedSignals(id), Failed: probed.Failed, Unwanted: w.unwants(c),
		}
		if found, asked := w.o.Prober.Results(w.key)[id]; asked && (found.Started != nil || found.Ready != nil) {
			n.Started, n.Ready, n.Since = found.Started, found.Ready, w.clock.wall().UTC()
		}
		if err := w.o.Data.Note(c.UID, id, n); err != nil {
			w.log.Warn("podrun would not go on from here after a restart", "container", c.Name, "why", err)
		}
	}
}

// recordedSignals are what an instance was sent, by the wall's clock.
func (w *worker) recordedSignals(id string) pod.Signals {
	s := w.signalled[id]
	for _, at := range []*time.Time{&s.Asked, &s.Hooked, &s.Signalled, &s.Killed} {
		*at = w.clock.recorded(*at)
	}
	return s
}

// ending reports that an instance has been asked to end.
func (w *worker) ending(seen pod.Observed) bool {
	return slices.ContainsFunc(seen.Containers, func(c pod.Container) bool { return w.signalled[c.ID] != (pod.Signals{}) })
}

// unwants reports that c is of what is not wanted any more.
func (w *worker) unwants(c pod.Container) bool {
	return w.pod == nil || c.UID != w.pod.UID || w.replaced
}

// signals are what an instance was sent: by this process, or as the checkpoint has it.
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

// resume takes over what an earlier podrun had begun to end.
func (w *worker) resume(seen pod.Observed) {
	for _, c := range seen.Containers {
		if s := w.signals(c); !c.Reaped && s != (pod.Signals{}) {
			w.signalled[c.ID] = s
		}
	}
}

// resumeUnwanted takes over which revisions an earlier podrun had begun to end because they were not wanted.
func (w *worker) resumeUnwanted(seen pod.Observed) {
	for _, c := range seen.Containers {
		if c.Notes.Unwanted {
			w.unwanted[c.UID] = true
		}
	}
}
