// Package patience bounds how long something may go on without progress. It does not bound how long it takes as a
// whole, and does not say what is done instead.
//
// Begin reading at With.
package patience

import (
	"context"
	"time"
)

type key struct{}

// With returns a context that ends as soon as nothing has been reported for d with Progress; context.Cause is
// context.DeadlineExceeded then. cancel releases what it uses.
func With(ctx context.Context, d time.Duration) (_ context.Context, cancel func()) {
	ctx, end := context.WithCancelCause(ctx)
	timer := time.AfterFunc(d, func() { end(context.DeadlineExceeded) })
	return context.WithValue(ctx, key{}, func() { timer.Reset(d) }), func() {
		timer.Stop()
		end(nil)
	}
}

// Progress reports that what a context of With is for has made progress. For other contexts it does nothing.
func Progress(ctx context.Context) {
	if report, is := ctx.Value(key{}).(func()); is && ctx.Err() == nil {
		report()
	}
}
