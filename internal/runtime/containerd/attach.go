package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/sys/stdin"
)

// onceSuffix ends the name of the pipe of a standard input that closes when its last writer has
// gone. The input of any other pipe never ends.
const onceSuffix = ".once"

// stdinTime is how long OpenStdin waits for the shim to open an instance's standard input, which
// the shim does concurrently with the start.
const stdinTime = 500 * time.Millisecond

// stdinOf returns the path of the pipe of the container's standard input, "" if it has none. The
// input of a terminal never ends, as in the CRI, because its end would hang up the terminal.
func (r *Runtime) stdinOf(s runtime.Start) string {
	path := layout.Stdin(r.Dirs.RawLog(s.Pod.UID, s.Container.Name, s.ID))
	switch {
	case !s.Container.Stdin:
		return ""
	case s.Container.StdinOnce && !s.Container.TTY:
		return path + onceSuffix
	default:
		return path
	}
}

// OpenStdin implements runtime.Attacher. The shim holds its own write end of the pipe, which keeps
// the input from ending. For an input that is to end with its writers, OpenStdin has the shim close
// that end as soon as there is a writer: the kernel then ends the input when the last writer closes
// it, in whatever way that writer ends.
func (r *Runtime) OpenStdin(ctx context.Context, id string) (io.WriteCloser, error) {
	ctx = r.client.Context(ctx)
	c, there, err := r.ours(ctx, id)
	if err != nil {
		return nil, err
	}
	t, err := r.task(ctx, id)
	if err != nil {
		return nil, err
	}
	if !there || t == nil || t.Status == task.Status_STOPPED {
		return nil, fmt.Errorf("standard input of %s: %w", id, runtime.ErrNotFound)
	}
	if t.Stdin == "" {
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
	if strings.HasSuffix(t.Stdin, onceSuffix) || c.Labels[legacyStdin] == legacyStdinOnce {
		if err := r.closeStdin(ctx, id); err != nil {
			w.Close()
			return nil, err
		}
	}
	return w, nil
}

// closeStdin makes the shim close its own end of an instance's standard input. It may be repeated.
func (r *Runtime) closeStdin(ctx context.Context, id string) error {
	_, err := r.client.TaskService().CloseIO(ctx, &tasks.CloseIORequest{ContainerID: id, Stdin: true})
	if daemon.IsGone(err) {
		return nil
	}
	return daemon.Mapped("closing the standard input of "+id, err)
}

// dropStdin removes the pipe of an instance that has exited or never ran. It also makes the shim
// close its ends of the pipe: the shim would otherwise keep those of a terminal until it exits,
// which is at the end of the pod.
func (r *Runtime) dropStdin(ctx context.Context, c pod.Container, t *task.Process) error {
	if t != nil && t.Stdin != "" {
		if err := r.closeStdin(ctx, c.ID); err != nil {
			r.Log.Debug("standard input of an exited container cannot be closed", "container", c.ID, "err", err)
		}
	}
	path := layout.Stdin(r.rawLog(c))
	return errors.Join(stdin.Remove(path), stdin.Remove(path+onceSuffix))
}

// ResizeTerminal implements runtime.Attacher.
func (r *Runtime) ResizeTerminal(ctx context.Context, id string, size runtime.TermSize) error {
	_, err := r.client.TaskService().ResizePty(r.client.Context(ctx), &tasks.ResizePtyRequest{
		ContainerID: id, Width: uint32(size.Width), Height: uint32(size.Height),
	})
	return daemon.Mapped("resizing the terminal of "+id, err)
}
