package memo

import "testing"

func TestMap(t *testing.T) {
	t.Parallel()
	var m Map[string, int]
	want := func(key string, v int, there bool) {
		t.Helper()
		if got, ok := m.Get(key); got != v || ok != there {
			t.Errorf("%s: %d, %t", key, got, ok)
		}
	}
	want("a", 0, false)
	m.Drop("a")
	m.Put("a", 1)
	m.Put("b", 2)
	m.Put("a", 3)
	want("a", 3, true)
	m.Drop("a")
	want("a", 0, false)
	want("b", 2, true)
}
