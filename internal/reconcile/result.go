package reconcile

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys/shortage"
)

// chooseResult sets whose result outlives its data: that of a pod which runs once ever, has finished, and is removed
// only because it is stopped. One that had not finished is recorded as interrupted before anything of it is terminated,
// as at a shutdown of the machine: its exit codes are no result. It may run again, unless something of it must not,
// whatever became of it.
func (w *worker) chooseResult(seen pod.Observed) error {
	w.state.Result = ""
	if w.state.Pod != nil || !w.shared.stops.Load() {
		return nil
	}
	p := w.manifests.Running(nil, seen)
	if p == nil || !runsOnceEver(p) {
		return nil
	}
	interrupted, err := w.interrupted(p.UID)
	final := !interrupted && w.final(p, seen)
	if err == nil && !interrupted && !final && isThere(seen) {
		interrupted, err = true, w.o.Data.Interrupt(p.UID)
		if shortage.Is(err) { // the pod may be what fills the disk
			w.o.Log.Warn("that a pod is cut off cannot be recorded: after a crash it may count as completed",
				"pod", pod.KeyOf(p), "err", err)
			w.state.CutOff, err = p.UID, nil
		}
	}
	if err != nil {
		return err
	}
	mine, _ := seen.Split(p.UID)
	if interrupted && startedForGood(p, mine) || final {
		w.state.Result = p.UID
	}
	return nil
}

// runsOnceEver reports that p is no pod of a workload, and has a result for good when it has completed.
func runsOnceEver(p *v1.Pod) bool {
	return p.Annotations[plan.AnnotationRunPolicy] == plan.RunOnceEver && p.Annotations[pod.AnnotationWorkload] == "" &&
		!slices.ContainsFunc(p.Spec.Containers, func(c v1.Container) bool { return plan.ShouldRestart(p, &c, 0) })
}

// startedForGood reports that a container has started that must not run a second time.
func startedForGood(p *v1.Pod, mine pod.Observed) bool {
	return slices.ContainsFunc(pod.AllContainers(p), func(c *v1.Container) bool {
		last, _, found := mine.Last(p.UID, c.Name)
		return found && last.State != pod.Created && !plan.ShouldRestart(p, c, 1)
	})
}
