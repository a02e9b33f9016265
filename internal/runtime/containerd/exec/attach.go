package exec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"

	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/instance"
	"podrun.io/podrun/internal/sys/stdin"
)

// The former version of podrun has a label for an input that ends when its writers have gone.
const (
	legacyStdin     = "podrun.io/stdin"
	legacyStdinOnce = "once"
)

// stdinTime is how long OpenStdin waits for the shim to open an instance's standard input, which
// the shim does concurrently with the start.
const stdinTime = 500 * time.Millisecond

// Attacher gives access to the standard streams of containers. Its methods may be called
// concurrently.
type Attacher struct {
	client *daemon.Client
	lookup *instance.Lookup
}

// NewAttacher returns an Attacher.
func NewAttacher(client *daemon.Client, lookup *instance.Lookup) *Attacher {
	return &Attacher{client, lookup}
}

// OpenStdin implements runtime.Attacher. The shim holds its own write end of the pipe, which keeps
// the input from ending. For an input that is to end with its writers, OpenStdin has the shim close
// that end as soon as there is a writer: the kernel then ends the input when the last writer closes
// it, in whatever way that writer ends.
func (a *Attacher) OpenStdin(ctx context.Context, id string) (io.WriteCloser, error) {
	ctx = a.client.Context(ctx)
	c, there, err := a.lookup.Record(ctx, id)
	if err != nil {
		return nil, err
	}
	t, err := a.lookup.Task(ctx, id)
	if err != nil {
		return nil, err
	}
	if !there || t == nil || t.Status == task.Status_STOPPED {
		return nil, fmt.Errorf("standard input of %s: %w", id, runtime.ErrNotFound)
	}
	if !instance.HasStdin(t.Stdin) {
		return nil, fmt.Errorf("container %s: %w", id, runtime.ErrNoStdin)
	}
	waiting, cancel := context.WithTimeout(ctx, stdinTime)
	defer cancel()
	w, err := stdin.Open(waiting, t.Stdin)
	if errors.Is(err, stdin.ErrClosed) {
		return nil, fmt.Errorf("container %s: %w: it has been closed", id, runtime.ErrNoStdin)
	}
	if err != nil {
		return nil, err
	}
	if instance.IsOnce(t.Stdin) || c.Labels[legacyStdin] == legacyStdinOnce {
		if err := instance.CloseStdin(ctx, a.client, id); err != nil {
			w.Close()
			return nil, err
		}
	}
	return w, nil
}

// ResizeTerminal implements runtime.Attacher.
func (a *Attacher) ResizeTerminal(ctx context.Context, id string, size runtime.TermSize) error {
	_, err := a.client.TaskService().ResizePty(a.client.Context(ctx), &tasks.ResizePtyRequest{
		ContainerID: id, Width: uint32(size.Width), Height: uint32(size.Height),
	})
	return daemon.Mapped("resizing the terminal of "+id, err)
}
