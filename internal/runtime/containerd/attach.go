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

// onceSuffix is at the end of the pipe's name of a standard input that ends when who was attached has gone; nothing ends
// any other.
const onceSuffix = ".once"

// stdinTime is how long the shim may take to open an instance's standard input, which it does beside the start.
const stdinTime = 500 * time.Millisecond

// stdinOf is the pipe of the container's standard input, "" if it has none. The end of a terminal's input would hang the
// terminal up, so there is none, as the CRI has it.
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

// OpenStdin implements runtime.Attacher. The shim's own end of the pipe is what keeps an input from ending.
// So for one that is to end with whoever was attached it is closed as soon as there is somebody: the
// kernel sees to the rest, however that one goes.
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

// closeStdin has the shim close its own end of an instance's standard input. Again is fine.
func (r *Runtime) closeStdin(ctx context.Context, id string) error {
	_, err := r.client.TaskService().CloseIO(ctx, &tasks.CloseIORequest{ContainerID: id, Stdin: true})
	if isGone(err) {
		return nil
	}
	return daemon.Mapped("closing the standard input of "+id, err)
}

// dropStdin removes the pipe of an instance that has ended, or never ran. A shim would keep its own ends of a
// terminal's until it ends itself, which is with the pod.
func (r *Runtime) dropStdin(ctx context.Context, c pod.Container, t *task.Process) error {
	if t != nil && t.Stdin != "" {
		if err := r.closeStdin(ctx, c.ID); err != nil {
			r.Log.Debug("an ended container's standard input was not closed", "container", c.ID, "why", err)
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
