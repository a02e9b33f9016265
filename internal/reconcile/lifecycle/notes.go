package lifecycle

import (
	"cmp"
	"log/slog"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile/revision"
	"podrun.io/podrun/internal/runtime"
)

// Results are the results of the hooks and probes of one pod.
type Results struct {
	key       pod.Key
	prober    Prober
	hooks     *hookSet
	instances *Instances
}

// Of returns the results by instance ID.
func (r *Results) Of(seen pod.Observed) map[string]pod.Probed {
	found := r.prober.Results(r.key)
	if found == nil && len(r.hooks.post) > 0 {
		found = map[string]pod.Probed{}
	}
	for id, h := range r.hooks.post {
		p := found[id]
		p.Starting = !h.done
		if h.at.After(p.Since) {
			p.Since = h.at
		}
		if h.failed != nil {
			p.Failed = h.failed
		}
		found[id] = p
	}
	for _, c := range seen.Containers {
		failed := c.Notes.Failed // as recorded by an earlier podrun process
		if restarted := r.instances.restarted[c.ID]; restarted != nil {
			failed = restarted
		}
		if p := found[c.ID]; failed != nil && (p.Failed == nil || failed.Requested) {
			p.Failed = failed
			if found == nil {
				found = map[string]pod.Probed{}
			}
			found[c.ID] = p
		}
	}
	for _, c := range seen.Containers {
		// A hook or probe that fails because its instance has exited says nothing about the
		// instance.
		if p, ok := found[c.ID]; ok && p.Failed != nil && !p.Failed.Requested && r.instances.endedByItself(c) {
			p.Failed = nil
			found[c.ID] = p
		}
	}
	return found
}

// Notes saves the state of instances in the checkpoint. So after a restart podrun does not repeat
// their postStart hooks or grace periods, and does not take a failure for a completion.
type Notes struct {
	data    runtime.Data
	results *Results
	log     *slog.Logger
}

// Save saves the state of one instance.
func (n *Notes) Save(s revision.State, seen pod.Observed, id string) {
	for _, c := range seen.Containers {
		if c.ID != id {
			continue
		}
		r := n.results
		probed := r.Of(seen)[id]
		note := pod.Notes{
			Started:      c.Notes.Started,
			Ready:        c.Notes.Ready,
			Since:        c.Notes.Since,
			PostStartDue: r.hooks.postStartLeft(c),
			Signals:      r.instances.recorded(id),
			Failed:       probed.Failed,
			Unanswered:   cmp.Or(r.instances.clock.recorded(r.instances.unanswered[id]), c.Notes.Unanswered),
			Unwanted:     s.Unwants(c) && c.UID != s.Result, // what has a result for good does not begin anew
		}
		if found, asked := r.prober.Results(r.key)[id]; asked && (found.Started != nil || found.Ready != nil) {
			note.Started, note.Ready, note.Since = found.Started, found.Ready, r.instances.clock.wall().UTC()
		}
		if err := n.data.Note(c.UID, id, note); err != nil {
			n.log.Warn("saving the container state failed; a restarted podrun may repeat hooks and the grace period",
				"container", c.Name, "err", err)
		}
	}
}

// SaveProbes saves the results of startup and readiness probes. So the next podrun process does not
// run the startup probe of a started instance again, and does not show a ready instance as not
// ready.
func (n *Notes) SaveProbes(s revision.State, seen pod.Observed) {
	found := n.results.prober.Results(n.results.key)
	for _, c := range seen.Containers {
		p, asked := found[c.ID]
		if !asked || c.State != pod.Running ||
			sameAnswer(p.Started, c.Notes.Started) && sameAnswer(p.Ready, c.Notes.Ready) {
			continue
		}
		n.Save(s, seen, c.ID)
	}
}

// sameAnswer reports that a probe result equals the recorded one. A nil result (none yet) counts as
// equal.
func sameAnswer(now, recorded *bool) bool {
	return now == nil || recorded != nil && *now == *recorded
}
