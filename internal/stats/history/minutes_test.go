package history

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/stats"
)

// TestMinutesSize: a pod with a container takes at most 2 KB.
func TestMinutesSize(t *testing.T) {
	t.Parallel()
	if size := unsafe.Sizeof(minutes{}) + unsafe.Sizeof(buffer{}); size > 2200 || Minutes != 60 {
		t.Errorf("%d bytes", size)
	}
}

// TestMinutes: what is missing between two samples, a clock that is set, and counters that begin again.
func TestMinutes(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	type sample struct {
		minute    int
		throttled time.Duration
		received  uint64
		disk      int64
		network   bool
	}
	for name, c := range map[string]struct {
		samples []sample
		want    string // throttled, received, sent and disk of the last minutes
	}{
		"one after another": {[]sample{{0, 0, 0, 7, true}, {1, 6 * time.Second, 600, 8, true}, {2, 6 * time.Second, 1200, 9, true}}, "-1 100 0|-1 10 10|-1 10 10|7 8 9"},
		"one is missing":    {[]sample{{0, 0, 0, 7, true}, {2, 12 * time.Second, 1200, 8, true}}, "-1 -1 100|-1 -1 10|-1 -1 10|7 -1 8"},
		"too many are":      {[]sample{{0, 0, 0, 7, true}, {9, time.Minute, 600, 8, true}}, "-1 -1 -1|-1 -1 -1|-1 -1 -1|-1 -1 8"},
		"it starts again":   {[]sample{{0, time.Minute, 600, 7, true}, {1, 0, 0, 7, true}, {2, 6 * time.Second, 60, 7, true}}, "-1 -1 100|-1 -1 1|-1 -1 1|7 7 7"},
		"no network":        {[]sample{{0, 0, 0, -1, false}, {1, 6 * time.Second, 600, -1, false}, {2, 6 * time.Second, 1200, -1, true}}, "-1 100 0|-1 -1 -1|-1 -1 -1|-1 -1 -1"},
		"the clock is set back": {
			[]sample{{100, 0, 0, 7, true}, {50, time.Second, 60, 8, true}}, "-1 -1 -1|-1 -1 -1|-1 -1 -1|-1 -1 8",
		},
	} {
		h := New(Options{})
		for _, s := range c.samples {
			at := begin.Add(time.Duration(s.minute) * time.Minute)
			h.newest = number(at)
			h.addPods([]stats.Total{{
				Pod: pod.Key{Namespace: "n", Name: "p"}, UID: "u", Throttled: s.throttled, Network: s.network,
				Received: s.received, Sent: s.received, Disk: s.disk,
			}}, at)
		}
		all := h.Pods(func(of Of) bool { return of.UID == "u" })
		if len(all) != 1 || len(all[0].Disk) != Minutes {
			t.Fatalf("%s: %v", name, all)
		}
		var got []string
		for _, values := range [][]float64{all[0].Throttled, all[0].Received, all[0].Sent, all[0].Disk} {
			got = append(got, strings.Trim(fmt.Sprintf("%.0f", values[Minutes-3:]), "[]"))
		}
		if text := strings.Join(got, "|"); text != c.want {
			t.Errorf("%s: %s, want %s", name, text, c.want)
		}
	}
	h := New(Options{})
	h.addPods([]stats.Total{{UID: "u"}}, begin)
	h.addPods(nil, begin.Add(59*time.Minute))
	if len(h.pods) != 1 {
		t.Error("it was forgotten too early")
	}
	if h.addPods(nil, begin.Add(time.Hour)); len(h.pods) != 0 {
		t.Error("it is kept without end")
	}
}
