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
	steps := NewSteps()
	if by, _ := steps.Next(); by != 0 {
		t.Errorf("a clock that nobody has set was set by %s", by)
	}
	steps.last -= time.Hour
	was := steps.last
	if by, boot := steps.Next(); (by-time.Hour).Abs() > time.Second || boot.UnixNano() != int64(was) {
		t.Errorf("a clock that was set by an hour: by %s, boot %s", by, boot)
	}
	if by, _ := steps.Next(); by != 0 {
		t.Errorf("noticed again, by %s", by)
	}
	_ = Synchronized() // which it is on some machines
}
