package plugins

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestLatest: a plugin that lists without end is looked at once in a second, and its last list counts; its end is noticed
// at once.
func TestLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("gone")
		begun, n := time.Now(), 0
		receive := func() (int, error) {
			time.Sleep(time.Millisecond)
			if n++; n > 10500 {
				return 0, gone
			}
			return n, nil
		}
		var all []int
		err := latest(t.Context(), receive, func(one int) { all = append(all, one) })
		if !errors.Is(err, gone) || time.Since(begun) > 10502*time.Millisecond {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
		if len(all) < 15 || len(all) > 25 || all[0] != 1 {
			t.Errorf("passed on %v", all)
		}
	})
}
