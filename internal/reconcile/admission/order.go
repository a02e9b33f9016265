package admission

import (
	"sync"

	"podrun.io/podrun/internal/pod"
)

// Order records which pods have arrived (pod.Arrived), and wakes the workers that wait for one of
// them. Its methods are safe for concurrent use.
type Order struct {
	mu      sync.Mutex
	arrived map[pod.Key]bool
	waiting map[pod.Key]map[Waiter]bool
}

// NewOrder returns an Order in which no pod has arrived.
func NewOrder() *Order {
	return &Order{arrived: map[pod.Key]bool{}, waiting: map[pod.Key]map[Waiter]bool{}}
}

// Report records whether a pod has arrived.
func (o *Order) Report(key pod.Key, arrived bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !arrived {
		delete(o.arrived, key)
		return
	}
	o.arrived[key] = true
	for w := range o.waiting[key] {
		w.Notify()
	}
	delete(o.waiting, key)
}

// Missing returns those of keys that have not arrived. It wakes w when one does.
func (o *Order) Missing(w Waiter, keys []pod.Key) []pod.Key {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []pod.Key
	for _, key := range keys {
		if o.arrived[key] {
			continue
		}
		out = append(out, key)
		if o.waiting[key] == nil {
			o.waiting[key] = map[Waiter]bool{}
		}
		o.waiting[key][w] = true
	}
	return out
}

// Forget removes a worker that has ended.
func (o *Order) Forget(w Waiter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, all := range o.waiting {
		delete(all, w)
	}
}
