package patience

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := With(t.Context(), time.Minute)
		defer cancel()
		inner, cancelInner := context.WithCancel(ctx)
		defer cancelInner()
		for range 10 {
			time.Sleep(50 * time.Second)
			Progress(inner)
		}
		if ctx.Err() != nil {
			t.Fatal("it ended although there was progress")
		}
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Fatal("it ended early")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if inner.Err() == nil || !errors.Is(context.Cause(inner), context.DeadlineExceeded) {
			t.Errorf("without progress: %v", context.Cause(inner))
		}
		Progress(inner) // changes nothing any more
		Progress(t.Context())
	})
}
