package image

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"podrun.io/podrun/internal/pod"
)

// TestFetched: who wants to know it hears when all layers that are known are there, and again if there were more.
func TestFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		m := NewMeter(begin)
		var heard []time.Duration
		m.OnFetched(func(at time.Time) { heard = append(heard, at.Sub(begin)) })
		done := func(layer string, want ...time.Duration) {
			t.Helper()
			time.Sleep(time.Second)
			m.Done(layer)
			if !slices.Equal(heard, want) {
				t.Errorf("after %s: %v, want %v", layer, heard, want)
			}
		}
		m.Expect("a", 1)
		m.Expect("b", 1)
		done("a")
		done("b", 2*time.Second)
		done("b", 2*time.Second) // the same again
		m.Expect("c", 1)
		m.Expect("present", 1)
		done("c", 2*time.Second)
		m.Pulled()
		var late time.Duration
		m.OnFetched(func(at time.Time) { late = at.Sub(begin) })
		if want := []time.Duration{2 * time.Second, 4 * time.Second}; !slices.Equal(heard, want) || late != want[1] {
			t.Errorf("after the pull: %v, %v", heard, late)
		}
		m = NewMeter(begin)
		m.OnFetched(func(time.Time) { t.Error("nothing was fetched") })
		m.Expect("present", 1)
		m.Pulled()
	})
}

func TestMeter(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	m := NewMeter(now)
	at := func(after time.Duration, want pod.Progress, text string) {
		t.Helper()
		if got := m.Progress(now.Add(after)); got != want || got.String() != text {
			t.Errorf("after %s: got %#v %q, want %#v %q", after, got, got, want, text)
		}
	}
	at(0, pod.Progress{}, "")
	m.At("config", 700, 700) // before the layers are known; no layer
	m.Expect("a", 4_000_000)
	m.Expect("b", 6_000_000)
	m.Expect("b", 6_000_000) // twice in the image, fetched once
	at(time.Second, pod.Progress{Total: 10_000_000, Layers: 2}, "0B of 10.0MB, 0B/s, 0 of 2 layers")
	m.At("a", 1_000_000, 0) // fetched by an earlier pull: it is there, but did not come now
	m.At("a", 3_000_000, 2_000_000)
	at(2*time.Second, pod.Progress{Fetched: 3_000_000, Total: 10_000_000, Layers: 2, Rate: 1_000_000}, "3.0MB of 10.0MB, 1.0MB/s, 0 of 2 layers")
	m.Done("b") // it was present
	at(3*time.Second, pod.Progress{Fetched: 9_000_000, Total: 10_000_000, Done: 1, Layers: 2, Rate: 666_666}, "9.0MB of 10.0MB, 666.7kB/s, 1 of 2 layers")
	at(10*time.Second, pod.Progress{Fetched: 9_000_000, Total: 10_000_000, Done: 1, Layers: 2}, "9.0MB of 10.0MB, 0B/s, 1 of 2 layers")
	m.At("a", 0, 0) // begun anew
	at(11*time.Second, pod.Progress{Fetched: 6_000_000, Total: 10_000_000, Done: 1, Layers: 2}, "6.0MB of 10.0MB, 0B/s, 1 of 2 layers")
	m.At("a", 9_000_000, 3_000_000) // more than there should be: the digest will tell
	m.Done("a")
	at(12*time.Second, pod.Progress{Fetched: 10_000_000, Total: 10_000_000, Done: 2, Layers: 2, Rate: 333_333}, "10.0MB fetched, unpacking")
}
