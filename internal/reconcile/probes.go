package reconcile

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"podrun.io/podrun/internal/pod"
)

// recordProbes saves the results of startup and readiness probes. So the next podrun process does
// not run the startup probe of a started instance again, and does not show a ready instance as not
// ready.
func (w *worker) recordProbes(seen pod.Observed) {
	found := w.o.Prober.Results(w.key)
	for _, c := range seen.Containers {
		p, asked := found[c.ID]
		if !asked || c.State != pod.Running ||
			sameAnswer(p.Started, c.Notes.Started) && sameAnswer(p.Ready, c.Notes.Ready) {
			continue
		}
		w.note(seen, c.ID)
	}
}

// sameAnswer reports that a probe result equals the recorded one. A nil result (none yet) counts as
// equal.
func sameAnswer(now, recorded *bool) bool {
	return now == nil || recorded != nil && *now == *recorded
}

// loadConditions loads the conditions that an earlier podrun process published, so that the new
// ones keep their transition times.
func (w *worker) loadConditions() {
	if w.before != nil {
		return
	}
	var err error
	if w.before, err = w.o.Data.LoadConditions(w.state.pod.UID); err != nil {
		w.log.Warn("loading the pod's conditions failed; their transition times may be too late", "err", err)
	}
}

// saveConditions saves the published conditions.
func (w *worker) saveConditions(now []v1.PodCondition) {
	if !equality.Semantic.DeepEqual(w.before, now) {
		if err := w.o.Data.SaveConditions(w.state.pod.UID, now); err != nil {
			w.log.Debug("saving the pod's conditions failed", "err", err)
		}
	}
	w.before = now
}
