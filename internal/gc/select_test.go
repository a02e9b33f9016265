package gc

import (
	"testing"
	"time"

	"podrun.io/podrun/internal/pod"
)

// TestUnusedAfterAWrongClock: an image of which the clock of a former boot says that it was used in 2099 can be removed
// for space, and not for its age. A clock that was a little early protects what was just loaded, as always.
func TestUnusedAfterAWrongClock(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	wrong := now.AddDate(73, 0, 0)
	s := observation{now: now, lastUsed: map[string]time.Time{"used": wrong}, images: []pod.StoredImage{
		{Name: "used", CreatedAt: now.Add(-24 * time.Hour)}, {Name: "loaded", CreatedAt: wrong},
		{Name: "new", CreatedAt: now.Add(5 * time.Second)}, {Name: "old", CreatedAt: now.Add(-24 * time.Hour)},
	}}
	names := func(longer time.Duration) (out string) {
		for _, i := range s.unused(longer) {
			out += i.Name + " "
		}
		return out
	}
	if got := names(2 * time.Minute); got != "old loaded used " {
		t.Errorf("for space: %s", got)
	}
	if got := names(12 * time.Hour); got != "old " {
		t.Errorf("for their age: %s", got)
	}
}
