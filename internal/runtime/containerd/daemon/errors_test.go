package daemon_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"podrun.io/podrun/internal/runtime/containerd/daemon"
)

func TestIsRuntimeFailure(t *testing.T) {
	t.Parallel()
	const text = `failed to create shim task: OCI runtime create failed: exec: "/none": no such file or directory`
	for name, x := range map[string]struct {
		err  error
		want bool
	}{
		"no error":            {nil, false},
		"runc's":              {status.Error(codes.Unknown, text), true},
		"runc's, native":      {daemon.Native(status.Error(codes.Unknown, text)), true},
		"containerd's":        {status.Error(codes.Unknown, "failed to start shim: exit status 1"), false},
		"containerd not here": {status.Error(codes.Unavailable, "connection refused"), false},
	} {
		if got := daemon.IsRuntimeFailure(x.err); got != x.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestIsShimGone(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		err        error
		shim, gone bool
	}{
		"no error":            {nil, false, false},
		"ttrpc's":             {ttrpc.ErrClosed, true, true},
		"ttrpc's, wrapped":    {fmt.Errorf("killing: %w", ttrpc.ErrClosed), true, true},
		"over gRPC":           {status.Error(codes.Unknown, "ttrpc: closed"), true, true},
		"over gRPC, native":   {daemon.Native(status.Error(codes.Unknown, "killing: ttrpc: closed: unknown")), true, true},
		"no task":             {status.Error(codes.NotFound, "task abc not found"), false, true},
		"no task, native":     {fmt.Errorf("task abc: %w", errdefs.ErrNotFound), false, true},
		"another":             {errors.New("closed"), false, false},
		"containerd not here": {status.Error(codes.Unavailable, "connection closed"), false, false},
	} {
		if got := daemon.IsShimGone(x.err); got != x.shim {
			t.Errorf("%s: the shim is gone: %t", name, got)
		}
		if got := daemon.IsGone(x.err); got != x.gone {
			t.Errorf("%s: the task is gone: %t", name, got)
		}
	}
}
