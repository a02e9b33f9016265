// Package memo provides a concurrent cache without expiry, for values that can be computed again.
// An entry stays until the caller drops it, podrun ends, or a Map that has a limit needs its place. The package does
// not compute values itself; its only type is Map.
package memo

import "sync"

// Map is a cache from keys to values. The zero Map is empty, ready to use, and has no limit. It is safe for
// concurrent use and must not be copied.
type Map[K comparable, V any] struct {
	mu   sync.Mutex
	of   map[K]V
	most int
}

// Limit makes the Map keep at most so many values: another one then replaces any of them. Maps whose keys others than
// podrun choose need a limit.
func (m *Map[K, V]) Limit(most int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.most = most
}

// Get returns the value of key; false if there is none.
func (m *Map[K, V]) Get(key K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.of[key]
	return v, ok
}

// Put sets the value of key.
func (m *Map[K, V]) Put(key K, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil {
		m.of = map[K]V{}
	}
	if _, there := m.of[key]; !there && m.most > 0 && len(m.of) >= m.most {
		for any := range m.of {
			delete(m.of, any)
			break
		}
	}
	m.of[key] = v
}

// Drop removes the value of key.
func (m *Map[K, V]) Drop(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, key)
}
