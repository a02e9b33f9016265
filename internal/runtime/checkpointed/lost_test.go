package checkpointed_test

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/checkpointed"
	"podrun.io/podrun/internal/runtime/fake"
)

// TestLostExitEndsWhenNoticed checks that an exit that was not observed, for example because of a
// reboot, has the time at which that was found. The time is the same in each list, and it is the
// time that is recorded.
func TestLostExitEndsWhenNoticed(t *testing.T) {
	for name, step := range map[string]time.Duration{"later": 3 * 7 * 24 * time.Hour, "clock set back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { lostExit(t, step) })
		})
	}
}

func lostExit(t *testing.T, step time.Duration) {
	offset, e := time.Duration(0), fake.NewEngine("boot")
	wall := func() time.Time { return time.Now().Add(offset) }
	e.AddImage("web:1", fake.Script{})
	quiet := slog.New(slog.DiscardHandler)
	r := checkpointed.New(checkpointed.Options{
		Driver: e.Driver(), Store: checkpoint.NewStoreOn(checkpoint.NewMemory(nil), quiet),
		Boot: e.Boot, Dirs: layout.Dirs{}, Wall: wall, Log: quiet,
	})
	p := benchPod(0)
	startPod(t, r, p)
	started := wall()
	offset = step
	want := started
	if step > 0 {
		want = wall()
	}
	e.Reboot("next")
	finished := func() (pod.Container, time.Time) {
		t.Helper()
		o, err := r.Inspect(t.Context(), pod.KeyOf(p))
		if err != nil || len(o.Containers) != 1 || o.Containers[0].State != pod.Exited || o.Containers[0].ExitCode != 255 {
			t.Fatalf("%+v, %v", o.Containers, err)
		}
		return o.Containers[0], o.Containers[0].FinishedAt
	}
	for range 3 {
		if _, at := finished(); !at.Equal(want) {
			t.Errorf("finished at %s, want %s", at, want)
		}
		time.Sleep(time.Second)
	}
	instance, _ := finished()
	if err := r.ReapContainer(t.Context(), instance.ID, ""); err != nil {
		t.Fatal(err)
	}
	if _, at := finished(); !at.Equal(want) {
		t.Errorf("recorded as finished at %s, want %s", at, want)
	}
}
