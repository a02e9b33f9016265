package clock

import (
	"testing"
	"time"
)

func TestSet(t *testing.T) {
	t.Parallel()
	w := New()
	if w.Set() {
		t.Error("a clock that nobody has set is said to be set")
	}
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		if !(Watch{since: w.since + by}).Set() {
			t.Errorf("a clock that was set by %s is not noticed", -by)
		}
	}
	_ = Synchronized() // which it is on some machines
}
