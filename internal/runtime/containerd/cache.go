package containerd

import (
	"slices"
	"sync"
	"time"

	"podrun.io/podrun/internal/pod"
)

// cache holds what was observed of instances. It maps containerd's events, which have container IDs
// only, to pods, and gives an inspection of one pod the container IDs to request.
type cache struct {
	mu        sync.Mutex
	instances map[string]instance
	ids       map[pod.Key][]string
	// whole is set once all containers have been listed. From then on the cache has every instance
	// except those that other programs create between two lists.
	whole bool
}

// instance is what the cache holds of one instance.
type instance struct {
	key pod.Key
	// oom means that the kernel killed a process of the instance because it ran out of memory.
	oom bool
	// at is when the instance was last observed.
	at time.Time
}

// forgetAfter is how long the cache keeps an instance that is not listed any more. The last events
// of an instance may arrive after it has been removed.
const forgetAfter = time.Minute

func newCache() *cache {
	return &cache{instances: map[string]instance{}, ids: map[pod.Key][]string{}}
}

func (k *cache) observed(id string, key pod.Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := k.instances[id]
	if i.key != key {
		k.ids[key] = append(k.ids[key], id)
	}
	i.key, i.at = key, time.Now()
	k.instances[id] = i
}

func (k *cache) observedOOM(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := k.instances[id]
	i.oom, i.at = true, time.Now()
	k.instances[id] = i
}

func (k *cache) key(id string) (pod.Key, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i, ok := k.instances[id]
	return i.key, ok && i.key != pod.Key{}
}

// of returns the IDs of a pod's instances; whole is false if there may be more.
func (k *cache) of(key pod.Key) (ids []string, whole bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.ids[key]), k.whole
}

func (k *cache) oom(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.instances[id].oom
}

// listed removes the instances that have not been observed for forgetAfter. It is called after a
// complete list.
func (k *cache) listed(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.whole = true
	for id, i := range k.instances {
		if now.Sub(i.at) <= forgetAfter {
			continue
		}
		delete(k.instances, id)
		k.ids[i.key] = slices.DeleteFunc(k.ids[i.key], func(other string) bool { return other == id })
		if len(k.ids[i.key]) == 0 {
			delete(k.ids, i.key)
		}
	}
}
