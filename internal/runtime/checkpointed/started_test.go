package checkpointed_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/checkpointed"
	"podrun.io/podrun/internal/runtime/fake"
)

// slowMaking delays the creation of an instance before its process is started.
type slowMaking struct{ fake.Driver }

// StartContainer implements runtime.Driver.
func (d slowMaking) StartContainer(ctx context.Context, s runtime.Start) error {
	time.Sleep(time.Minute)
	return d.Driver.StartContainer(ctx, s)
}

// TestStartedAtIsTheProcess checks that the start time, from which initial delays count, is that of
// the process and not that of its record.
func TestStartedAtIsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := fake.NewEngine("boot")
		e.AddImage("web:1", fake.Script{})
		r := checkpointed.New(checkpointed.Options{
			Driver: slowMaking{e.Driver()}, Store: checkpoint.NewStoreOn(checkpoint.NewMemory(nil), slog.New(slog.DiscardHandler)),
			Boot: e.Boot, Dirs: layout.Dirs{}, Log: slog.New(slog.DiscardHandler),
		})
		p, begun := benchPod(0), time.Now()
		startPod(t, r, p)
		o, err := r.Inspect(t.Context(), pod.KeyOf(p))
		if err != nil || len(o.Containers) != 1 || !o.Containers[0].StartedAt.Equal(begun.Add(time.Minute)) {
			t.Errorf("begun %s: %+v, %v", begun, o.Containers, err)
		}
	})
}
