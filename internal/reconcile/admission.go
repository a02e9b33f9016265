package reconcile

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// admission records which of the machine's resources the pods on it have requested, and wakes the
// workers that wait for resources when some are freed. It does not decide which pod may start: the
// planner does.
type admission struct {
	has v1.ResourceList

	mu       sync.Mutex
	reserved map[pod.Key]v1.ResourceList
	waiting  map[*mailbox]bool
}

func newAdmission(has v1.ResourceList) *admission {
	return &admission{has: has, reserved: map[pod.Key]v1.ResourceList{}, waiting: map[*mailbox]bool{}}
}

// hold records what a pod on the machine has requested, whether it fits or not.
func (r *admission) hold(key pod.Key, requests v1.ResourceList) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if was, held := r.reserved[key]; held && equality.Semantic.DeepEqual(was, requests) {
		return
	}
	r.letGo(key)
	if len(requests) > 0 {
		r.reserved[key] = requests
	}
}

// release records that a pod is not on the machine.
func (r *admission) release(key pod.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.letGo(key)
}

func (r *admission) letGo(key pod.Key) {
	if _, held := r.reserved[key]; !held {
		return
	}
	delete(r.reserved, key)
	for m := range r.waiting {
		m.notify()
	}
	clear(r.waiting)
}

// used returns what pods other than key have requested. It returns nil if that pod already has its
// reservation and needs no more; else it also wakes m's worker when resources are freed.
func (r *admission) used(key pod.Key, m *mailbox, more bool) v1.ResourceList {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, held := r.reserved[key]; held && !more {
		return nil
	}
	r.waiting[m] = true
	return r.others(key)
}

func (r *admission) others(key pod.Key) v1.ResourceList {
	sum := v1.ResourceList{}
	for other, requests := range r.reserved {
		if other == key {
			continue
		}
		for name, q := range requests {
			q = q.DeepCopy()
			q.Add(sum[name])
			sum[name] = q
		}
	}
	return sum
}

// admit reserves what the pod requests. It returns false if other pods have reserved it since the
// planner decided that the pod fits.
func (r *admission) admit(key pod.Key, requests v1.ResourceList) bool {
	if len(requests) == 0 {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if plan.Lacking(requests, r.others(key), r.has) != nil {
		return false
	}
	r.reserved[key] = requests
	return true
}

// grow replaces the pod's reservation by that of to. It returns false if other pods have reserved
// the additional resources meanwhile.
func (r *admission) grow(key pod.Key, from, to *v1.Pod) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if plan.Lacking(plan.Growth(from, to), r.others(key), r.has) != nil {
		return false
	}
	r.letGo(key)
	if requests := plan.Requests(to); len(requests) > 0 {
		r.reserved[key] = requests
	}
	return true
}

// forget removes a worker that has ended, and the reservation of its pod.
func (r *admission) forget(key pod.Key, m *mailbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, m)
	r.letGo(key)
}

// account records whether the worker's pod is on the machine: it is as long as it has a sandbox, or
// an instance that runs or whose state is unknown.
func (w *worker) account(seen pod.Observed) {
	there := len(seen.Sandboxes) > 0
	for _, c := range seen.Containers {
		there = there || c.State == pod.Running || c.State == pod.Unknown
	}
	switch {
	case !there:
		w.shared.admission.release(w.key)
	case w.state.pod != nil:
		w.shared.admission.hold(w.key, plan.Requests(w.state.pod))
	} // a pod that is being terminated keeps its reservation
}

// used returns what other pods have requested, if the worker's pod needs resources.
func (w *worker) used() v1.ResourceList {
	if w.state.pod == nil || w.state.resized == nil && len(plan.Requests(w.state.pod)) == 0 {
		return nil
	}
	return w.shared.admission.used(w.key, w.mailbox, w.state.resized != nil)
}
