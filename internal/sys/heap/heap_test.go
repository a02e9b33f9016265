package heap

import "testing"

// TestRoomFor: a small heap may grow to roomyHeap, a large one to twice the live heap.
func TestRoomFor(t *testing.T) {
	for living, want := range map[uint64]int{0: 800, 1 << 20: 800, 8 << 20: 300, 16 << 20: 100, 1 << 30: 100} {
		if got := heapLimit(living); got != want {
			t.Errorf("%d living bytes: %d %%, want %d", living, got, want)
		}
	}
}

// TestMetric: runtime/metrics has metrics with these names.
func TestMetric(t *testing.T) {
	for _, name := range []string{objects, unused, free} {
		if name != free && metric(name) == 0 {
			t.Errorf("%s is nothing", name)
		}
	}
	if metric(objects) > metric(objects, unused, free) {
		t.Error("the sum is less than its part")
	}
}
