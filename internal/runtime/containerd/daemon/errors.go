package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/status"

	"podrun.io/podrun/internal/runtime"
)

// Mapped wraps an error of containerd's with what was being done, and gives it the port's kinds.
func Mapped(doing string, err error) error {
	if err == nil {
		return nil
	}
	err = Native(err)
	switch {
	case errdefs.IsUnavailable(err):
		return fmt.Errorf("%s: %w: %w", doing, runtime.ErrUnavailable, err)
	case errdefs.IsNotFound(err):
		return fmt.Errorf("%s: %w: %w", doing, runtime.ErrNotFound, err)
	default:
		return fmt.Errorf("%s: %w", doing, err)
	}
}

// Native gives an error of a raw call its kind; one of the client's own has it already, and would lose it.
func Native(err error) error {
	if _, raw := status.FromError(err); raw {
		return errgrpc.ToNative(err)
	}
	return err
}

// IsNotFound reports that an error of containerd's says that the object is missing.
func IsNotFound(err error) bool { return errdefs.IsNotFound(Native(err)) }

// IsInterrupted reports that a call was cut off, so that nothing is known of what it did.
func IsInterrupted(ctx context.Context, err error) bool {
	err = Native(err)
	return ctx.Err() != nil || errdefs.IsUnavailable(err) || errdefs.IsCanceled(err) || errdefs.IsDeadlineExceeded(err) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
