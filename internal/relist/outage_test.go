package relist

import (
	"testing"
	"testing/synctest"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// TestOutage: the times in which the runtime cannot be reached, or hangs, are added up. A pod that cannot be inspected
// is none.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMachine(t, pod.Container{ID: "a", State: pod.Running, PID: 7})
		defer m.stop()
		set := func(change func()) { m.world.mu.Lock(); defer m.world.mu.Unlock(); change() }
		about := func(want time.Duration) {
			t.Helper()
			if got := m.relister.Outage(); got < want-2*time.Second || got > want+2*time.Second {
				t.Errorf("outages of %s, want %s", got, want)
			}
		}
		m.within(time.Minute)
		about(0)
		set(func() { m.fail = runtime.ErrUnavailable })
		m.within(2 * time.Minute) // noticed by the next list, at most a minute later
		before := m.relister.Outage()
		if before < time.Minute || before > 2*time.Minute {
			t.Errorf("outages of %s, want 1 to 2 minutes", before)
		}
		m.within(time.Hour)
		set(func() { m.fail = nil })
		m.within(time.Minute)
		about(before + time.Hour)
		set(func() { m.mute = map[pod.Key]bool{m.key: true} })
		m.within(time.Hour)
		set(func() { m.mute = nil })
		m.within(time.Minute)
		about(before + time.Hour)
		hang := make(chan struct{})
		set(func() { m.stuck = map[pod.Key]chan struct{}{m.key: hang} })
		m.within(10 * time.Minute)
		set(func() { m.stuck = nil })
		close(hang)
		m.within(20 * time.Minute)
		if got := m.relister.Outage() - before - time.Hour; got < 9*time.Minute || got > 10*time.Minute {
			t.Errorf("an outage of %s, want 9 to 10 minutes", got)
		}
	})
}
