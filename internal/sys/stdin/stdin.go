// Package stdin manages named pipes that are the standard input of containers' processes.
//
// The shim reads such a pipe and, until it is told to close its own end, also keeps an end open for
// writing: so the process sees no end of its input when writers, podrun among them, come and go.
//
// The package does not know which process reads the pipe, nor who is allowed to write. Make creates
// a pipe, Open opens it for writing.
package stdin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrClosed reports that no process reads the pipe any more.
var ErrClosed = errors.New("standard input is closed")

// Make creates the pipe, and replaces an existing one: that may still have the reader of an
// interrupted start.
func Make(path string) error {
	if err := Remove(path); err != nil {
		return err
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return fmt.Errorf("making the pipe of a standard input: %w", err)
	}
	return nil
}

// Remove removes the pipe. Processes that have it open keep it.
func Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the pipe of a standard input: %w", err)
	}
	return nil
}

// again is the time between two attempts to open a pipe.
const again = 5 * time.Millisecond

// Open opens the pipe for writing. The returned file counts as a writer until it is closed, which
// also happens when the process ends. A reader may take until ctx ends to open the pipe, because
// shims do that concurrently with the start. Without a reader by then, or without a pipe, the error
// is ErrClosed.
func Open(ctx context.Context, path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
		switch {
		case err == nil:
			return f, nil
		case errors.Is(err, fs.ErrNotExist):
			return nil, ErrClosed
		case !errors.Is(err, unix.ENXIO):
			return nil, fmt.Errorf("opening a standard input: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil, ErrClosed
		case <-time.After(again):
		}
	}
}
