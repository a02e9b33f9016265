// Package trace reports the parts of what a runtime does in one call, as net/http/httptrace does for a request: when
// the network of a sandbox is set up, and when an image has been fetched. The caller puts a Trace into the context; no
// decision depends on it.
//
// Begin reading with Trace.
package trace

import (
	"context"
	"time"
)

// Trace has functions that any goroutine calls as things happen. They must not block. Nil ones are not called.
type Trace struct {
	// Network is called before the network of a sandbox is set up. It is not called for a pod in the host's network.
	Network func()
	// Connected is called when that has ended, with its error.
	Connected func(error)
	// Fetched is called with the time since when all known layers of an image are there, so that the rest is unpacking.
	// It is called again if there were more layers.
	Fetched func(time.Time)
}

type key struct{}

// With returns ctx with t for what is called with it.
func With(ctx context.Context, t Trace) context.Context { return context.WithValue(ctx, key{}, t) }

// Of returns the Trace of ctx. None of its functions is nil.
func Of(ctx context.Context) Trace {
	t, _ := ctx.Value(key{}).(Trace)
	if t.Network == nil {
		t.Network = func() {}
	}
	if t.Connected == nil {
		t.Connected = func(error) {}
	}
	if t.Fetched == nil {
		t.Fetched = func(time.Time) {}
	}
	return t
}
