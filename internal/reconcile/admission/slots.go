package admission

import (
	"context"
	"fmt"
	"sync"
	"time"

	"podrun.io/podrun/internal/runtime"
)

// Slots limit how many sandboxes and containers are created and removed at the same time. The
// processors of the machine are the bottleneck: more parallel work only makes each one slower.
// RemoveSandbox has more slots: what removes a sandbox mostly waits for the kernel, which removes one
// network link after the other.
type Slots struct {
	Create, Remove, RemoveSandbox chan struct{}
}

// removals is how many sandboxes are removed at the same time where processors would allow less.
const removals = 32

// NewSlots returns n slots for creating and n for removing.
func NewSlots(n int) Slots {
	return Slots{
		Create:        make(chan struct{}, n),
		Remove:        make(chan struct{}, n),
		RemoveSandbox: make(chan struct{}, max(n, removals)),
	}
}

// longestSlot is how long a mutation holds its slot. A mutation that takes longer is not computing
// but waiting, usually for a shim or a mount that hangs. A few of those would prevent every other
// pod from starting.
const longestSlot = 10 * time.Second

// Within calls f with the timeout of a mutation. It holds a slot until f returns, but at most for
// 10 s: a mutation that takes longer goes on without a slot.
func Within(ctx context.Context, slot chan struct{}, f func(context.Context) error) error {
	select {
	case slot <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	free := sync.OnceFunc(func() { <-slot })
	defer free()
	defer time.AfterFunc(longestSlot, free).Stop()
	return InTime(ctx, f)
}

// InTime calls f with the timeout of a mutation, runtime.Timeout.
func InTime(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, runtime.Timeout)
	defer cancel()
	err := f(ctx)
	if err != nil && ctx.Err() == context.DeadlineExceeded {
		err = fmt.Errorf("not done within %s: %w", runtime.Timeout, err)
	}
	return err
}
