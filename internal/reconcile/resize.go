package reconcile

import (
	"fmt"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// reasonResize is the kubelet's of a resize that failed.
const reasonResize = "ResizeError"

// allocate gives the pod the CPU and memory that its manifest says, unless others have taken them since it was
// judged that they are there. It is kept on disk before anything gets it: what is larger than what is kept
// would be taken for less by the next podrun.
func (w *worker) allocate(a plan.Allocate) {
	if w.resized == nil || !a.Anew && !w.admission.grow(w.key, w.pod, w.resized) {
		return
	}
	w.pod, w.resized = w.resized, nil
	w.save(w.pod)
	w.stale = true // volumes may show them
	if !a.Anew {
		w.recorded.resizing = true
		w.record("", normal, "ResizeStarted", "Pod resize started: "+pod.SizeOf(w.pod))
	}
}

// recordResize records what becomes of another size of the pod, under the kubelet's reasons.
func (w *worker) recordResize(p plan.Plan) {
	pending := ""
	if why := p.ResizePending; why != nil {
		pending = why.Reason + why.Message
		if pending != w.recorded.pending {
			w.record("", warning, "Resize"+why.Reason, fmt.Sprintf("Pod resize %s: %s", why.Reason, why.Message))
		}
	}
	w.recorded.pending = pending
	if p.Resizing == nil && w.recorded.resizing {
		w.record("", normal, "ResizeCompleted", "Pod resize completed: "+pod.SizeOf(w.pod))
	}
	w.recorded.resizing = p.Resizing != nil
}
