package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/status"

	"podrun.io/podrun/internal/runtime"
)

// Mapped wraps an error of containerd with the operation that failed, and with
// runtime.ErrUnavailable or runtime.ErrNotFound if it is of that kind. It returns nil for nil.
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

// Native converts the error of a raw gRPC call to an errdefs error. It leaves an error of
// containerd's client unchanged, which already is one and would lose its kind.
func Native(err error) error {
	if _, raw := status.FromError(err); raw {
		return errgrpc.ToNative(err)
	}
	return err
}

// IsNotFound reports whether an error of containerd means that the object does not exist.
func IsNotFound(err error) bool { return errdefs.IsNotFound(Native(err)) }

// IsInterrupted reports whether a call was interrupted, so that its effect is not known.
func IsInterrupted(ctx context.Context, err error) bool {
	err = Native(err)
	return ctx.Err() != nil ||
		errdefs.IsUnavailable(err) || errdefs.IsCanceled(err) || errdefs.IsDeadlineExceeded(err) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// IsRuntimeFailure reports whether the low-level runtime (runc) caused a start to fail: the error is
// then about the container itself, its command or its mounts, and not about containerd or the shim.
// containerd gives such an error no kind of its own, only a text.
func IsRuntimeFailure(err error) bool {
	return err != nil && strings.Contains(err.Error(), "OCI runtime")
}

// IsNoProgram reports whether a start failed because the image has no program that can be executed as
// the container's command. Only the text of runc's error says so.
func IsNoProgram(err error) bool {
	return IsRuntimeFailure(err) && strings.Contains(err.Error(), `exec: "`)
}

// IsFull reports whether runc had no space for what it needs, such as a mount point. Only the text of
// its error says so.
func IsFull(err error) bool {
	return IsRuntimeFailure(err) && !IsNoProgram(err) &&
		(strings.Contains(err.Error(), unix.ENOSPC.Error()) || strings.Contains(err.Error(), unix.EDQUOT.Error()))
}

// IsShimGone reports whether a task cannot be reached because the shim that served it has exited.
// The error of a raw gRPC call has the text of ttrpc.ErrClosed only.
func IsShimGone(err error) bool {
	return errors.Is(err, ttrpc.ErrClosed) || err != nil && strings.Contains(err.Error(), ttrpc.ErrClosed.Error())
}

// IsGone reports whether a task cannot be reached because the task, or the shim that served it, no
// longer exists.
func IsGone(err error) bool { return IsNotFound(err) || IsShimGone(err) }
