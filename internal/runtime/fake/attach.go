package fake

import (
	"context"
	"fmt"
	"io"
	"os"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// input is the standard input of an instance.
type input struct {
	// once means that it ends with its last writer, ended that it has ended.
	once, ended bool
	writers     int
}

// OpenStdin opens the standard input of a running instance.
func (r Driver) OpenStdin(ctx context.Context, id string) (io.WriteCloser, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "OpenStdin", id); err != nil {
		return nil, err
	}
	c := r.containers[id]
	if c == nil || c.State != pod.Running {
		return nil, fmt.Errorf("standard input of %s: %w", id, runtime.ErrNotFound)
	}
	if c.input == nil || c.input.ended {
		return nil, fmt.Errorf("container %s: %w", id, runtime.ErrNoStdin)
	}
	c.input.writers++
	return &writer{r: r.Engine, to: c.input}, nil
}

// ResizeTerminal records the call. It returns ErrNotFound if the instance does not run.
func (r Driver) ResizeTerminal(ctx context.Context, id string, size runtime.TermSize) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "ResizeTerminal", fmt.Sprint(id, size)); err != nil {
		return err
	}
	if c := r.containers[id]; c == nil || c.State != pod.Running {
		return fmt.Errorf("terminal of %s: %w", id, runtime.ErrNotFound)
	}
	return nil
}

// writer is one writer of an input.
type writer struct {
	r      *Engine
	to     *input
	closed bool
}

func (w *writer) Write(p []byte) (int, error) {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	if w.closed {
		return 0, os.ErrClosed
	}
	return len(p), nil
}

func (w *writer) Close() error {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	if w.closed {
		return os.ErrClosed
	}
	w.closed = true
	w.to.writers--
	w.to.ended = w.to.once && w.to.writers == 0
	return nil
}
