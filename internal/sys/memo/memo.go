// Package memo provides a concurrent cache without expiry, for values that can be computed again.
// An entry stays until the caller drops it or podrun ends. The package does not compute values
// itself; its only type is Map.
package memo

import "sync"

// Map is a cache from keys to values. The zero Map is empty and ready to use. It is safe for
// concurrent use and must not be copied.
type Map[K comparable, V any] struct {
	mu sync.Mutex
	of map[K]V
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
	m.of[key] = v
}

// Drop removes the value of key.
func (m *Map[K, V]) Drop(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, key)
}
