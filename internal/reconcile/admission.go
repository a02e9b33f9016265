package reconcile

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// admission keeps what of the machine's resources pods have requested that are there, and rings those that wait
// for some when it gets less. It does not judge: who may start is the planner's to say.
type admission struct {
	has v1.ResourceList

	mu       sync.Mutex
	reserved map[pod.Key]v1.ResourceList
	waiting  map[*worker]bool
}

func newAdmission(has v1.ResourceList) *admission {
	return &admission{has: has, reserved: map[pod.Key]v1.ResourceList{}, waiting: map[*worker]bool{}}
}

// hold notes what a pod that is there has requested, whether it fits or not.
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

// release notes that a pod is not there.
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
	for w := range r.waiting {
		w.notify()
	}
	clear(r.waiting)
}

// used is what pods other than w's have, unless w's has its place and needs no more. w is rung when it gets less.
func (r *admission) used(w *worker, more bool) v1.ResourceList {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, held := r.reserved[w.key]; held && !more {
		return nil
	}
	r.waiting[w] = true
	return r.others(w.key)
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

// admit holds what the pod requests, unless others have taken it since it was judged that it fits.
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

// grow has the pod hold other requests than it had, unless others have taken meanwhile what it needs more.
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

// forget lets go of a worker that has ended.
func (r *admission) forget(w *worker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, w)
	r.letGo(w.key)
}

// account tells the room whether the worker's pod is there: as long as it has a sandbox, or anything lives.
func (w *worker) account(seen pod.Observed) {
	there := len(seen.Sandboxes) > 0
	for _, c := range seen.Containers {
		there = there || c.State == pod.Running || c.State == pod.Unknown
	}
	switch {
	case !there:
		w.admission.release(w.key)
	case w.pod != nil:
		w.admission.hold(w.key, plan.Requests(w.pod))
	} // what is on its way out keeps what it has
}

// used is what others have of what the worker's pod requests.
func (w *worker) used() v1.ResourceList {
	if w.pod == nil || w.resized == nil && len(plan.Requests(w.pod)) == 0 {
		return nil
	}
	return w.admission.used(w, w.resized != nil)
}
