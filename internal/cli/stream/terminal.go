// Package stream connects the user's streams to processes and ports of pods: attach, exec and
// port-forward.
//
// It connects neither to containerd nor to a network namespace: it is given a runtime.Execer, a
// runtime.Attacher, and a function that dials a port. Begin reading at Attach, Exec and Forwarder.
package stream

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/term"

	"podrun.io/podrun/internal/runtime"
)

// sizeOf returns the size of a terminal, or zero if it is unknown.
func sizeOf(terminal *os.File) runtime.TermSize {
	width, height, err := term.GetSize(int(terminal.Fd()))
	if err != nil {
		return runtime.TermSize{}
	}
	return runtime.TermSize{Width: uint16(width), Height: uint16(height)}
}

// attachTerminal prepares the user's terminal for use by a process in a container. It sends the size to sizes
// now and whenever it changes, and sets raw mode if raw is true, so that every key is passed on
// unchanged. The caller must call restore to restore the terminal.
func attachTerminal(ctx context.Context, terminal *os.File, raw bool) (
	sizes <-chan runtime.TermSize,
	restore func(),
	err error,
) {
	reset := func() {}
	if raw {
		old, err := term.MakeRaw(int(terminal.Fd()))
		if err != nil {
			return nil, nil, fmt.Errorf("setting the terminal to raw mode: %w", err)
		}
		reset = func() { _ = term.Restore(int(terminal.Fd()), old) }
	}
	ctx, cancel := context.WithCancel(ctx)
	changes := make(chan runtime.TermSize, 1)
	var watching sync.WaitGroup
	watching.Go(func() { watchSize(ctx, terminal, changes) })
	return changes, func() {
		cancel()
		watching.Wait()
		reset()
	}, nil
}

// watchSize sends the terminal's size to sizes now and whenever it changes, until ctx ends.
func watchSize(ctx context.Context, terminal *os.File, sizes chan<- runtime.TermSize) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	defer signal.Stop(changed)
	for {
		if size := sizeOf(terminal); size != (runtime.TermSize{}) {
			select {
			case sizes <- size:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
