package cli

import (
	"context"
	"testing"
	"time"
)

// TestUntilNext: output that nobody reads blocks until the next interrupt, be it the first
// or the second.
func TestUntilNext(t *testing.T) {
	t.Parallel()
	s := &Signals{second: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	never := make(chan struct{})
	defer close(never)
	printed := false
	s.UntilNext(ctx, func() { printed = true })
	time.AfterFunc(10*time.Millisecond, cancel)
	s.UntilNext(ctx, func() { <-never })
	if ctx.Err() == nil {
		t.Error("it was not waited for")
	}
	s.UntilNext(ctx, func() { printed = printed && true })
	time.AfterFunc(10*time.Millisecond, func() { close(s.second) })
	s.UntilNext(ctx, func() { <-never })
	select {
	case <-s.second:
	default:
		t.Error("it was not waited for after an interrupt")
	}
	if !printed {
		t.Error("nothing was printed")
	}
}
