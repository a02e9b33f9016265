package reconcile

import (
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// reasonResize is the kubelet's reason for a failed resize.
const reasonResize = "ResizeError"

// allocate gives the pod the CPU and memory of its manifest, unless other pods have reserved them
// since the planner decided that they are available. It saves the new size before an instance gets
// it: after a restart podrun would otherwise count the pod as smaller than it is.
func (w *worker) allocate(a plan.Allocate) {
	if w.state.resized == nil || !a.Anew && !w.shared.admission.grow(w.key, w.state.pod, w.state.resized) {
		return
	}
	w.state.pod, w.state.resized = w.state.resized, nil
	w.manifests.update(w.state.pod)
	w.state.stale = true // volumes may show the resources
	if !a.Anew {
		w.recorder.resizing = true
		w.recorder.record("", normal, "ResizeStarted", "Pod resize started: "+pod.SizeOf(w.state.pod))
	}
}
