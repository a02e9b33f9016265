package orphan

import (
	"testing"
	"time"
)

func TestCutOffEnd(t *testing.T) {
	t.Parallel()
	begun := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, x := range map[string]struct{ passed, left time.Duration }{
		"just begun":             {0, cutOffTime},
		"a while ago":            {time.Second, cutOffTime - time.Second},
		"long ago":               {time.Hour, cutOffTime - time.Hour},
		"the clock was set back": {-time.Hour, cutOffTime},
	} {
		now := begun.Add(x.passed)
		if left := cutOffEnd(begun, now).Sub(now); left != x.left {
			t.Errorf("%s: %s, want %s", name, left, x.left)
		}
	}
}
