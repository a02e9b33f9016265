// Package admission is what the workers of a loop share: which of the machine's resources pods have
// requested (Resources), which pods have arrived, as pod.Arrived says, so that those after them may
// start (Order), and how many mutations run at the same time (Slots).
//
// Package plan decides which pod may start. Resources.Admit makes sure that no other pod has been
// given the same resources since.
//
// Begin reading at Resources.
package admission

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// Waiter is woken when what it waits for may have come. Notify does not block.
type Waiter interface{ Notify() }

// Resources records which of the machine's resources the pods on it have requested, and wakes the
// workers that wait for resources when some are freed. Its methods are safe for concurrent use.
type Resources struct {
	has v1.ResourceList

	mu       sync.Mutex
	reserved map[pod.Key]v1.ResourceList
	waiting  map[Waiter]bool
}

// NewResources returns the resources of a machine that has so much for pods.
func NewResources(has v1.ResourceList) *Resources {
	return &Resources{has: has, reserved: map[pod.Key]v1.ResourceList{}, waiting: map[Waiter]bool{}}
}

// Hold records what a pod on the machine has requested, whether it fits or not.
func (r *Resources) Hold(key pod.Key, requests v1.ResourceList) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if was, held := r.reserved[key]; held && equality.Semantic.DeepEqual(was, requests) {
		return
	}
	r.release(key)
	if len(requests) > 0 {
		r.reserved[key] = requests
	}
}

// Release records that a pod is not on the machine.
func (r *Resources) Release(key pod.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.release(key)
}

func (r *Resources) release(key pod.Key) {
	if _, held := r.reserved[key]; !held {
		return
	}
	delete(r.reserved, key)
	for w := range r.waiting {
		w.Notify()
	}
	clear(r.waiting)
}

// Used returns what pods other than key have requested. It returns nil if that pod already has its
// reservation and needs no more; else it also wakes w when resources are freed.
func (r *Resources) Used(key pod.Key, w Waiter, more bool) v1.ResourceList {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, held := r.reserved[key]; held && !more {
		return nil
	}
	r.waiting[w] = true
	return r.others(key)
}

func (r *Resources) others(key pod.Key) v1.ResourceList {
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

// Admit reserves what the pod requests. It returns false if other pods have reserved it since the
// planner decided that the pod fits.
func (r *Resources) Admit(key pod.Key, requests v1.ResourceList) bool {
	if len(requests) == 0 {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if plan.Insufficient(requests, r.others(key), r.has) != nil {
		return false
	}
	r.reserved[key] = requests
	return true
}

// Grow replaces the pod's reservation by that of to. It returns false if other pods have reserved
// the additional resources meanwhile.
func (r *Resources) Grow(key pod.Key, from, to *v1.Pod) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if plan.Insufficient(plan.AdditionalRequests(from, to), r.others(key), r.has) != nil {
		return false
	}
	r.release(key)
	if requests := plan.Requests(to); len(requests) > 0 {
		r.reserved[key] = requests
	}
	return true
}

// Forget removes a worker that has ended, and the reservation of its pod.
func (r *Resources) Forget(key pod.Key, w Waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, w)
	r.release(key)
}
