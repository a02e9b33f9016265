package main

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

func kill(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("killing process %d: %w", pid, err)
	}
	return nil
}

// settle waits for the effects of earlier work to end, so that they are not measured with what
// follows.
func settle(ctx context.Context) error { return sleep(ctx, 500*time.Millisecond) }

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
