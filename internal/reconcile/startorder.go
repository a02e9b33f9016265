package reconcile

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// order records which pods have reached their result (Arrived), and wakes the workers that wait for
// one of them. It does not decide which pod may start: the planner does.
type order struct {
	mu      sync.Mutex
	arrived map[pod.Key]bool
	waiting map[pod.Key]map[*mailbox]bool
}

func newOrder() *order {
	return &order{arrived: map[pod.Key]bool{}, waiting: map[pod.Key]map[*mailbox]bool{}}
}

// report records whether a pod has reached its result.
func (o *order) report(key pod.Key, arrived bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !arrived {
		delete(o.arrived, key)
		return
	}
	o.arrived[key] = true
	for m := range o.waiting[key] {
		m.notify()
	}
	delete(o.waiting, key)
}

// missing returns those of keys that have not reached their result. It wakes m's worker when
// one does.
func (o *order) missing(m *mailbox, keys []pod.Key) []pod.Key {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []pod.Key
	for _, key := range keys {
		if o.arrived[key] {
			continue
		}
		out = append(out, key)
		if o.waiting[key] == nil {
			o.waiting[key] = map[*mailbox]bool{}
		}
		o.waiting[key][m] = true
	}
	return out
}

// forget removes a worker that has ended.
func (o *order) forget(m *mailbox) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, all := range o.waiting {
		delete(all, m)
	}
}

// after returns the pods that the worker's pod still has to wait for.
func (w *worker) after() []pod.Key {
	if w.state.pod == nil {
		return nil
	}
	keys := pod.After(w.state.pod)
	if len(keys) == 0 {
		return nil
	}
	return w.shared.order.missing(w.mailbox, keys)
}

// Arrived reports that a pod has reached a good result: a job has succeeded, a service is ready.
func Arrived(p *v1.Pod) bool {
	if p.Status.Phase == v1.PodSucceeded {
		return true
	}
	return p.Spec.RestartPolicy == v1.RestartPolicyAlways &&
		slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
		})
}
