package runtime

import (
	"context"
	"time"
)

// patience is how long a Call may take before it is reported. Servers and drivers that fail to answer for 3 s are
// reported for themselves.
const patience = 4 * time.Second

type callKey struct{}

// caller is for whom something is done.
type caller struct {
	wanted context.Context
	report func(reason, message string)
}

// WithCaller returns ctx for Call: wanted ends when nobody wants the result any more, though what has begun is still
// completed with ctx, and report records what is waited for.
func WithCaller(ctx, wanted context.Context, report func(reason, message string)) context.Context {
	return context.WithValue(ctx, callKey{}, caller{wanted, report})
}

// Call calls do, which may wait long for a program of somebody else, and may be given up at any moment: its context
// ends with ctx, and also as soon as nobody wants the result. If it takes long, that is reported with the message.
func Call(ctx context.Context, reason, message string, do func(context.Context) error) error {
	by, is := ctx.Value(callKey{}).(caller)
	if !is {
		return do(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(by.wanted, func() { cancel(context.Cause(by.wanted)) })()
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		by.report(reason, message)
	}
	return <-done
}
