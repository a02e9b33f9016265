package reconcile

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"podrun.io/podrun/internal/pod"
)

// recordProbes keeps what startup and readiness probes have come to say of the instances, so that the next podrun
// neither asks what has started up to start up again nor shows what is ready as not ready.
func (w *worker) recordProbes(seen pod.Observed) {
	found := w.o.Prober.Results(w.key)
	for _, c := range seen.Containers {
		p, asked := found[c.ID]
		if !asked || c.State != pod.Running || sameAnswer(p.Started, c.Notes.Started) && sameAnswer(p.Ready, c.Notes.Ready) {
			continue
		}
		w.note(seen, c.ID)
	}
}

// sameAnswer reports that a probe's answer is the recorded one. One that was not given yet is none.
func sameAnswer(now, recorded *bool) bool {
	return now == nil || recorded != nil && *now == *recorded
}

// loadConditions has the pod's conditions go on from what an earlier podrun published, so that their times are those of
// their transitions.
func (w *worker) loadConditions() {
	if w.before != nil {
		return
	}
	var err error
	if w.before, err = w.o.Data.LoadConditions(w.pod.UID); err != nil {
		w.log.Warn("conditions may show later times than those of their transitions", "err", err)
	}
}

// saveConditions keeps the conditions that are published.
func (w *worker) saveConditions(now []v1.PodCondition) {
	if !equality.Semantic.DeepEqual(w.before, now) {
		if err := w.o.Data.SaveConditions(w.pod.UID, now); err != nil {
			w.log.Debug("conditions are not kept", "err", err)
		}
	}
	w.before = now
}
