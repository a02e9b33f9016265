package reconcile

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// measurePeriod is how often it is looked how large volumes with a limit are, as the kubelet does.
const measurePeriod = 10 * time.Second

// evicted says why the pod has to end for what its volumes hold; "" if it need not. A pod of which nothing
// lives is not measured.
func (w *worker) evicted(seen pod.Observed) string {
	if w.pod == nil || !hasLimits(w.pod) {
		return ""
	}
	measure := false
	mine, _ := seen.Split(w.pod.UID)
	for _, c := range mine.Containers {
		measure = measure || c.State == pod.Running
	}
	if measure = measure && time.Since(w.measured) >= measurePeriod; measure {
		w.measured = time.Now()
	}
	why, err := w.o.Volumes.Exceeded(w.pod, measure)
	if err != nil {
		w.log.Warn("volumes are not measured", "why", err)
	}
	return why
}

// hasLimits reports that the pod has volumes that are measured.
func hasLimits(p *v1.Pod) bool {
	for _, v := range p.Spec.Volumes {
		if v.EmptyDir != nil && v.EmptyDir.SizeLimit != nil && v.EmptyDir.Medium == v1.StorageMediumDefault {
			return true
		}
	}
	return false
}

// sooner is the shorter of two waits, of which 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
