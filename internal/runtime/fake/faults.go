package fake

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// faults records the calls of the Driver and makes them fail.
type faults struct {
	mu    sync.Mutex // guards the whole Engine
	calls []string
	fail  map[string]error
	// left is the number of mutations that still succeed; negative means all.
	left int
}

// enter records a call and returns the error that Fail or CutAfter set for it.
func (r *faults) enter(ctx context.Context, call, what string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.left == 0 {
		return ErrCut
	}
	r.calls = append(r.calls, call+" "+what)
	if err := r.fail[call]; err != nil {
		return err
	}
	switch call {
	case "ListContainers", "InspectContainers", "SandboxReady", "Wakeups", "Resolve", "RegistryDigest", "Exec",
		"LayerSize", "OpenStdin", "ResizeTerminal":
	default:
		if r.left > 0 {
			r.left--
		}
	}
	return nil
}

// ErrCut is the error of every call after the mutations of CutAfter are used up.
var ErrCut = errors.New("podrun was killed")

// CutAfter lets n more mutations succeed and makes all later calls fail, reads too, as if podrun
// was killed at that moment. A negative n lets all calls succeed again.
func (r *faults) CutAfter(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = n
}

// Left returns the number of mutations that CutAfter still lets succeed.
func (r *faults) Left() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left
}

// Calls returns all calls so far, in order.
func (r *faults) Calls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// Fail makes every call of the named method return err, until Fail is called with nil.
func (r *faults) Fail(call string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail[call] = err
}
