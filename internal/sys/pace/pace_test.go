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
		for i, want := range []int{0, 0, 0, 1, 2, 3} {
			if err := p.Wait(t.Context()); err != nil || int(time.Since(begun)/time.Second) != want {
				t.Errorf("%d: %v after %s, want %d s", i, err, time.Since(begun), want)
			}
		}
		time.Sleep(2 * time.Second) // two more at once
		begun = time.Now()
		for i, want := range []int{0, 0, 1} {
			if err := p.Wait(t.Context()); err != nil || int(time.Since(begun)/time.Second) != want {
				t.Errorf("later %d: %v after %s, want %d s", i, err, time.Since(begun), want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := p.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
