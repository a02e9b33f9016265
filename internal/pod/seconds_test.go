package pod

import (
	"math"
	"testing"
	"time"
)

func TestSeconds(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]time.Duration{
		0: 0, 30: 30 * time.Second, -1: -time.Second, math.MaxInt32: math.MaxInt32 * time.Second,
		9999999999: forever, math.MaxInt64: forever,
	} {
		if got := Seconds(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
