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
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// Waiter is woken when what it waits for may have come. Notify does not block.
type Waiter interface{ Notify() }

// Resources records which of the machine's resources the pods on it have requested, and wakes the
// workers that wait for resources when some are freed. Its methods are safe for concurrent use.
type Resources struct {
	node    v1.ResourceList
	devices Devices // may be nil

	mu       sync.Mutex
	reserved map[pod.Key]v1.ResourceList
	// kept are the pods that nothing is left of, and that have their reservation until they start again.
	kept    map[pod.Key]bool
	waiting map[Waiter]bool
}

// Devices are the devices of plugins. They come and go.
type Devices interface {
	// Offered returns what is offered to pods now, by resource; nil if no plugin can register.
	Offered() map[v1.ResourceName]pod.DeviceOffer
	// OnChange makes f be called after that, or the CPUs that containers share, have changed. f does not block.
	OnChange(f func())
	// CPUs returns the CPUs that the containers of p are to run on. Its sandbox has the ID; "" if it has none.
	CPUs(sandbox string, p *v1.Pod) pod.CPUs
	// Acquire chooses the devices and the own CPUs of p, unless it has them.
	Acquire(ctx context.Context, sandbox string, p *v1.Pod) error
	// Health returns the health of the devices that the containers of p have. Its sandbox has the ID.
	Health(sandbox string, p *v1.Pod) map[string][]v1.ResourceStatus
}

// NewResources returns the resources of a machine that has so much for pods, and the devices of plugins, which
// may be nil.
func NewResources(node v1.ResourceList, devices Devices) *Resources {
	r := &Resources{
		node: node, devices: devices, reserved: map[pod.Key]v1.ResourceList{}, kept: map[pod.Key]bool{},
		waiting: map[Waiter]bool{},
	}
	if devices != nil {
		devices.OnChange(func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.wake()
		})
	}
	return r
}

// machine returns what the machine has now, with the devices of plugins if there are such requests. Nothing is
// used of it yet.
func (r *Resources) machine(requests v1.ResourceList) plan.Machine {
	if !pod.HasDevice(requests) {
		return plan.Machine{Has: r.node}
	}
	m := plan.Machine{
		Has: maps.Clone(r.node), NoPlugins: true,
		Unhealthy: map[v1.ResourceName]int{}, Why: map[v1.ResourceName]string{},
	}
	if m.Has == nil {
		m.Has = v1.ResourceList{}
	}
	if r.devices != nil {
		offered := r.devices.Offered()
		m.NoPlugins = offered == nil
		for name, offer := range offered {
			m.Has[name] = *resource.NewQuantity(int64(offer.Usable), resource.DecimalSI)
			m.Unhealthy[name] = offer.Unhealthy
			if !offer.Lost.IsZero() {
				m.Why[name] = fmt.Sprintf("the device plugin of %s is not connected since %s",
					name, offer.Lost.Format(time.RFC3339))
			}
		}
	}
	for name := range requests {
		if _, has := m.Has[name]; has || !pod.IsDevice(name) {
			continue
		}
		m.Why[name] = fmt.Sprintf("neither this node's --node-config nor a device plugin (--plugins) has %s", name)
		if m.NoPlugins {
			m.Why[name] = fmt.Sprintf("this node's --node-config does not have %s, and podrun runs without device "+
				"plugins (serve --plugins)", name)
		}
		m.Why[name] += near(name, m.Has)
	}
	return m
}

// near says which device of the machine was probably meant by the name of one that it does not have; "" if none was.
func near(name v1.ResourceName, has v1.ResourceList) string {
	var names []string
	for other := range has {
		if pod.IsDevice(other) {
			names = append(names, string(other))
		}
	}
	slices.Sort(names)
	if meant, _ := decode.Nearest(string(name), names); meant != "" {
		return fmt.Sprintf("; did you mean %s?", meant)
	}
	return ""
}

// CPUs returns the CPUs that the containers of p are to run on, and notifies w when those that it shares with other
// pods change. Its sandbox has the ID; "" if it has none.
func (r *Resources) CPUs(w Waiter, sandbox string, p *v1.Pod) pod.CPUs {
	if r.devices == nil {
		return pod.CPUs{}
	}
	now := r.devices.CPUs(sandbox, p)
	if now.Shared == "" {
		return now
	}
	r.mu.Lock()
	r.waiting[w] = true
	r.mu.Unlock()
	return r.devices.CPUs(sandbox, p) // what changed meanwhile is not missed
}

// ChooseCPUs returns the CPUs to put a container of p on, which was put on last. It chooses those that are to be its
// own, if they have not been chosen, and gives those back that are not any more.
func (r *Resources) ChooseCPUs(ctx context.Context, sandbox string, p *v1.Pod, container, last string) (string, error) {
	if r.devices == nil {
		return "", nil
	}
	if r.devices.CPUs(sandbox, p).Shared != "" {
		if err := r.devices.Acquire(ctx, sandbox, p); err != nil {
			return "", err
		}
	}
	return r.devices.CPUs(sandbox, p).Of(container, last), nil
}

// Hold records what a pod on the machine has requested, whether it fits or not.
func (r *Resources) Hold(key pod.Key, requests v1.ResourceList) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replace(key, requests)
}

// replace makes requests the reservation of a pod, and wakes who waits for what it does not need any more.
func (r *Resources) replace(key pod.Key, requests v1.ResourceList) {
	delete(r.kept, key)
	if was, held := r.reserved[key]; held && !equality.Semantic.DeepEqual(was, requests) {
		r.release(key)
	}
	if len(requests) > 0 {
		r.reserved[key] = requests
	}
}

// Expect is Hold for a pod that may be on the machine. One that alone requests more than the machine has was not
// admitted, and others do not wait for it: if it is there nevertheless, Hold follows.
func (r *Resources) Expect(key pod.Key, requests v1.ResourceList) {
	for name, q := range requests {
		if has, known := r.node[name]; known && q.Cmp(has) > 0 {
			return
		}
	}
	r.Hold(key, requests)
}

// Keep records that nothing is left of a pod, and keeps its reservation for its next start, which requests so much:
// an edit, a reboot or the absence of its plugin gives its devices to nobody else. It returns false if there is none,
// or if the pod requests more than it had: who waits for more keeps nobody else waiting.
func (r *Resources) Keep(key pod.Key, requests v1.ResourceList) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	had, held := r.reserved[key]
	for name, q := range requests {
		has := had[name]
		held = held && q.Cmp(has) <= 0
	}
	if held {
		r.kept[key] = true
	}
	return held
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
	delete(r.kept, key)
	r.wake()
}

// wake wakes all who wait for resources.
func (r *Resources) wake() {
	for w := range r.waiting {
		w.Notify()
	}
	clear(r.waiting)
}

// Machine returns what the machine has of what the pod requests, and what pods other than key have requested. The
// latter is left out if that pod already has its reservation and needs no more; else w is woken when resources are
// freed, or come.
func (r *Resources) Machine(key pod.Key, w Waiter, requests v1.ResourceList, more bool) plan.Machine {
	r.mu.Lock()
	_, held := r.reserved[key]
	if !held || more || pod.HasDevice(requests) {
		// Before devices are counted: what changes meanwhile is not missed. Who has devices shows their
		// health.
		r.waiting[w] = true
	}
	r.mu.Unlock()
	m := r.machine(requests)
	if held && !more {
		return m
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m.Used, m.Holders = r.others(key), r.holders(key, requests)
	return m
}

// maxHolders is how many pods that have a resource are named.
const maxHolders = 5

// holders names the pods other than key that have reserved some of what is requested, by resource: first those that
// have most of it.
func (r *Resources) holders(key pod.Key, requests v1.ResourceList) map[v1.ResourceName]string {
	all, out := map[v1.ResourceName][]pod.Key{}, map[v1.ResourceName]string{}
	for other, reserved := range r.reserved {
		for name, q := range reserved {
			if _, requested := requests[name]; requested && !q.IsZero() && r.counts(other, key) {
				all[name] = append(all[name], other)
			}
		}
	}
	for name, keys := range all {
		slices.SortFunc(keys, func(a, b pod.Key) int {
			has, other := r.reserved[a][name], r.reserved[b][name]
			return cmp.Or(other.Cmp(has), strings.Compare(a.String(), b.String()))
		})
		var names []string
		for _, key := range keys[:min(len(keys), maxHolders)] {
			names = append(names, key.String())
		}
		if more := len(keys) - maxHolders; more > 0 {
			names = append(names, fmt.Sprintf("%d more", more))
		}
		out[name] = strings.Join(names, ", ")
	}
	return out
}

// counts reports whether the pod key cannot have what the pod other has reserved. Who starts again comes before those
// that have not been on the machine, but not before others like it: with fewer devices than they had, some start.
func (r *Resources) counts(other, key pod.Key) bool {
	return other != key && (!r.kept[key] || !r.kept[other])
}

// others returns what pods other than key have reserved.
func (r *Resources) others(key pod.Key) v1.ResourceList {
	sum := v1.ResourceList{}
	for other, requests := range r.reserved {
		if !r.counts(other, key) {
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
	m := r.machine(requests)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(requests) > 0 {
		if m.Used = r.others(key); m.Lack(requests) != nil {
			return false
		}
	}
	r.replace(key, requests)
	return true
}

// Grow replaces the pod's reservation by that of to. It returns false if other pods have reserved
// the additional resources meanwhile.
func (r *Resources) Grow(key pod.Key, from, to *v1.Pod) bool {
	more := plan.AdditionalRequests(from, to)
	m := r.machine(more)
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.Used = r.others(key); m.Lack(more) != nil {
		return false
	}
	r.replace(key, plan.Requests(to))
	return true
}

// Forget removes a worker that has ended, and the reservation of its pod.
func (r *Resources) Forget(key pod.Key, w Waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, w)
	r.release(key)
}
