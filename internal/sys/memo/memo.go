// Package memo remembers what was found out and could be found out again, for as long as podrun runs. It forgets
// nothing by itself.
package memo

import "sync"

// Map has a value for each key that one was put for. The zero Map is empty; it may be used by many at the same time,
// and must not be copied.
type Map[K comparable, V any] struct {
	mu sync.Mutex
	of map[K]V
}

// Get returns what was put for the key last; false: nothing is remembered.
func (m *Map[K, V]) Get(key K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.of[key]
	return v, ok
}

// Put remembers v.
func (m *Map[K, V]) Put(key K, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil {
		m.of = map[K]V{}
	}
	m.of[key] = v
}

// Drop forgets what was put for the key.
func (m *Map[K, V]) Drop(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, key)
}
