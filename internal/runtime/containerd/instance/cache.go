package instance

import (
	"slices"
	"sync"
	"time"

	"podrun.io/podrun/internal/pod"
)

// Cache holds what was observed of instances. It maps containerd's events, which have container IDs
// only, to pods, and gives an inspection of one pod the container IDs to request. Its methods may be
// called concurrently.
type Cache struct {
	mu        sync.Mutex
	instances map[string]observation
	ids       map[pod.Key][]string
	// whole is set once all containers have been listed. From then on the cache has every instance
	// except those that other programs create between two lists.
	whole bool
}

// observation is what the cache holds of one instance.
type observation struct {
	key pod.Key
	// oom means that the kernel killed a process of the instance because it ran out of memory.
	oom bool
	// at is when the instance was last observed.
	at time.Time
}

// forgetAfter is how long the cache keeps an instance that is not listed any more. The last events
// of an instance may arrive after it has been removed.
const forgetAfter = time.Minute

// NewCache returns an empty Cache.
func NewCache() *Cache {
	return &Cache{instances: map[string]observation{}, ids: map[pod.Key][]string{}}
}

// Observed caches the pod of an instance.
func (c *Cache) Observed(id string, key pod.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.instances[id]
	if i.key != key {
		c.ids[key] = append(c.ids[key], id)
	}
	i.key, i.at = key, time.Now()
	c.instances[id] = i
}

// ObservedOOM caches that the kernel killed a process of the instance because it ran out of memory.
func (c *Cache) ObservedOOM(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.instances[id]
	i.oom, i.at = true, time.Now()
	c.instances[id] = i
}

// Key returns the pod of an instance; false if it is not cached.
func (c *Cache) Key(id string) (pod.Key, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, ok := c.instances[id]
	return i.key, ok && i.key != pod.Key{}
}

// Of returns the IDs of a pod's instances; whole is false if there may be more.
func (c *Cache) Of(key pod.Key) (ids []string, whole bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.ids[key]), c.whole
}

// OOM reports what ObservedOOM has cached of the instance.
func (c *Cache) OOM(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.instances[id].oom
}

// Listed removes the instances that have not been observed for forgetAfter. It is called after a
// complete list.
func (c *Cache) Listed(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.whole = true
	for id, i := range c.instances {
		if now.Sub(i.at) <= forgetAfter {
			continue
		}
		delete(c.instances, id)
		c.ids[i.key] = slices.DeleteFunc(c.ids[i.key], func(other string) bool { return other == id })
		if len(c.ids[i.key]) == 0 {
			delete(c.ids, i.key)
		}
	}
}
