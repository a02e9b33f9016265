package reconcile

import (
	"slices"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// Requests has the restarts that users request.
type Requests interface {
	// Of returns the requests for the pod with the UID.
	Of(uid pod.UID) []pod.RestartRequest
	// Remove removes a request that is answered.
	Remove(q pod.RestartRequest)
}

// readRequests returns the requests for the worker's pod. What waits without an instance is tried again at once, with
// the next plan.
func (w *worker) readRequests() []pod.RestartRequest {
	if w.o.Requests == nil || w.state.Pod == nil {
		return nil
	}
	requests := w.o.Requests.Of(w.state.Pod.UID)
	for _, q := range requests {
		if q.ID == "" {
			w.failures.Forget(q.Container)
			w.puller.Restart(q.Container)
		}
	}
	return requests
}

// withRequests returns probed with the requests.
func withRequests(probed map[string]pod.Probed, requests []pod.RestartRequest) map[string]pod.Probed {
	for _, q := range requests {
		if q.ID == "" {
			continue
		}
		if probed == nil {
			probed = map[string]pod.Probed{}
		}
		p := probed[q.ID]
		p.RestartRequested = true
		probed[q.ID] = p
	}
	return probed
}

// answer removes the requests that need no action any more: those that were accepted, and those of instances that are
// not restarted. A plan that is not sure of what runs has not considered them.
func (w *worker) answer(requests []pod.RestartRequest, p plan.Plan) {
	accepts := func(a plan.Action) bool { _, is := a.(plan.RestartOnRequest); return is }
	if p.Unsure || slices.ContainsFunc(p.Actions, accepts) {
		return
	}
	for _, q := range requests {
		w.o.Requests.Remove(q)
	}
}
