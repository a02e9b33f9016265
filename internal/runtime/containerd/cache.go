package containerd

import (
	"slices"
	"sync"
	"time"

	"podrun.io/podrun/internal/pod"
)

// cache is what was seen of instances: it gives containerd's events, which carry IDs only, their pods, and
// a look at one pod the IDs to ask for.
type cache struct {
	mu        sync.Mutex
	instances map[string]instance
	ids       map[pod.Key][]string
	// whole says that everything has been listed once: from then on nothing is there that is not known, but
	// what others make between two lists.
	whole bool
}

type instance struct {
	key pod.Key
	// oom says that the kernel killed in it for want of memory.
	oom bool
	at  time.Time
}

// forgetAfter is how long an instance that is not listed any more is remembered: its last events may
// come after it has gone.
const forgetAfter = time.Minute

func newCache() *cache {
	return &cache{instances: map[string]instance{}, ids: map[pod.Key][]string{}}
}

func (k *cache) saw(id string, key pod.Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := k.instances[id]
	if i.key != key {
		k.ids[key] = append(k.ids[key], id)
	}
	i.key, i.at = key, time.Now()
	k.instances[id] = i
}

func (k *cache) sawOOM(id string) {
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

// of returns the IDs of a pod's instances; whole is false when there may be more.
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

// listed forgets what has not been seen for a while, after a list, which sees all that is there.
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
