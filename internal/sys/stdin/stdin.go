// Package stdin is the way to the standard input of what runs: a named pipe. The shim reads it and, until it
// is told to close its own, also holds an end to write to: so the process meets no end of its input when
// those who write come and go, podrun among them. It does not know what runs, nor who may write.
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

// ErrClosed says that nobody reads the pipe any more.
var ErrClosed = errors.New("standard input is closed")

// Make makes the pipe anew: what was there may still have the reader of a start that was cut off.
func Make(path string) error {
	if err := Remove(path); err != nil {
		return err
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return fmt.Errorf("making the pipe of a standard input: %w", err)
	}
	return nil
}

// Remove removes the pipe. Who has it open goes on.
func Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the pipe of a standard input: %w", err)
	}
	return nil
}

// again is the time between two attempts to open a pipe.
const again = 5 * time.Millisecond

// Open opens the pipe to be written to; what is open counts as a writer until it is closed, also by the end
// of the process. A reader has until ctx ends to open it, since shims do that beside the start; without
// one it is ErrClosed, as when there is no pipe.
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
