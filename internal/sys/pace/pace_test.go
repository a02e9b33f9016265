package pace

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, begun := Pace{AtOnce: 3, Every: time.Second}, time.Now()
		for i, want := range []time.Duration{0, 0, 0, 1, 2, 3} {
			if err := p.Wait(t.Context()); err != nil || time.Since(begun) != want*time.Second {
				t.Errorf("%d: %v after %s, want %s", i, err, time.Since(begun), want*time.Second)
			}
		}
		time.Sleep(2 * time.Second) // two more at once
		begun = time.Now()
		for i, want := range []time.Duration{0, 0, 1} {
			if err := p.Wait(t.Context()); err != nil || time.Since(begun) != want*time.Second {
				t.Errorf("later %d: %v after %s, want %s", i, err, time.Since(begun), want*time.Second)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := p.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
