package shutdown

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/runtime/fake"
)

// TestShutdownIsToldToABusyLoop: a busy loop still receives the machine's shutdown when it is late,
// with the time that remains.
func TestShutdownIsToldToABusyLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop := make(chan reconcile.Halt)
		s := Pods{Runtime: fake.New("boot"), Loop: loop, Options: Options{Critical: 2 * time.Second}, Log: slog.New(slog.DiscardHandler)}
		go s.Begin(t.Context(), 10*time.Second)
		time.Sleep(4500 * time.Millisecond) // busy
		for _, want := range []time.Duration{3600 * time.Millisecond, 1800 * time.Millisecond} {
			select {
			case got := <-loop:
				if got.Grace != want {
					t.Errorf("grace %v, want %v", got.Grace, want)
				}
			case <-time.After(time.Second):
				t.Error("not told")
			}
		}
	})
}
