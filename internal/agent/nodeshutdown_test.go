package agent

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
		h := &house{o: Options{Log: slog.New(slog.DiscardHandler), Halt: HaltOptions{Critical: 2 * time.Second}}, runtime: fake.New("boot")}
		s := halting{h, make(chan reconcile.Halt)}
		go s.Begin(t.Context(), 10*time.Second)
		time.Sleep(4500 * time.Millisecond) // busy
		for _, want := range []time.Duration{3600 * time.Millisecond, 1800 * time.Millisecond} {
			select {
			case got := <-s.to:
				if got.Grace != want {
					t.Errorf("grace %v, want %v", got.Grace, want)
				}
			case <-time.After(time.Second):
				t.Error("not told")
			}
		}
	})
}
