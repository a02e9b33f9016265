package record

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"testing"
	"testing/synctest"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
)

// unreadable is a disk of which some files cannot be read.
type unreadable struct {
	*checkpoint.Memory
	files map[string]bool
}

func (d unreadable) ReadRun(name string) ([]byte, error) {
	if d.files[name] {
		return nil, errors.New("too many open files")
	}
	return d.Memory.ReadRun(name)
}

// TestDamagedRecordIsRemoved: what waits for a record that cannot be read goes on when that is removed, as the log says,
// or can be read again, and not before.
func TestDamagedRecordIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := unreadable{checkpoint.NewMemory(nil), map[string]bool{"default_b": true}}
		write := func(name, text string) {
			t.Helper()
			text = `{"version":1,"namespace":"default","name":"` + name + `","history":` + text + `}`
			if err := d.WriteRun("default_"+name, []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		const good = `{"run":"1","document":"d"}`
		write("a", `null`)
		write("b", good)
		write("c", good)
		r := New(nowhere{})
		if _, err := r.Recall(checkpoint.NewStoreOn(d, slog.New(slog.DiscardHandler))); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go notifyFrozen(ctx, r)
		id := func(name string) workload.ID {
			return workload.ID{Kind: workload.Job, Key: pod.Key{Namespace: "default", Name: name}}
		}
		// next has what is decided next: nothing new.
		next := func(wait bool, jobs int, frozen ...string) {
			t.Helper()
			if wait {
				<-r.Changed()
			}
			want := map[workload.ID]bool{}
			for _, name := range frozen {
				want[id(name)] = true
			}
			got := r.Recorded()
			if len(got.Jobs) != jobs || !maps.Equal(got.Frozen, want) {
				t.Errorf("frozen %v, want %v; Jobs %v", got.Frozen, want, got.Jobs)
			}
			if failed := r.Save(got.Histories); len(failed) > 0 {
				t.Errorf("not stored: %v", failed)
			}
		}
		next(false, 1, "a", "b")
		next(true, 1, "a", "b")
		d.files["default_b"] = false
		next(false, 1, "a", "b") // not read each time that something is decided
		next(true, 2, "a")
		if err := d.RemoveRun("default_a"); err != nil {
			t.Fatal(err)
		}
		next(true, 2)
		synctest.Wait()
		if names, err := d.RunNames(); err != nil || len(names) != 2 {
			t.Errorf("stored are %v, %v", names, err)
		}
	})
}
