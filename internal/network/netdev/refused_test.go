package netdev

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestRefused: what is refused is left alone for a while, or until it was not missing any more.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Refused
		without := func(want []string, all ...string) {
			t.Helper()
			if got := r.Without(all); !slices.Equal(got, want) {
				t.Errorf("of %q: %q, want %q", all, got, want)
			}
		}
		without([]string{"a"}, "a")
		r.Set([]string{"a", "b"}, time.Minute)
		without([]string{"c"}, "a", "b", "c")
		if !r.Has(nil) || !r.Has([]string{"b"}) || r.Has([]string{"b", "c"}) {
			t.Error("what it has")
		}
		without([]string{}, "a") // b is there
		without([]string{"b"}, "a", "b")
		time.Sleep(time.Minute + time.Second)
		without([]string{"a"}, "a")
		if r.Has([]string{"a"}) {
			t.Error("refused for ever")
		}
	})
}
