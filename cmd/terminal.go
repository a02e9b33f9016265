package cmd

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

// terminalOf returns a stream if it is a terminal, else nil.
func terminalOf(stream any) *os.File {
	if f, ok := stream.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// sizeOf is a terminal's size; zero where that is not known.
func sizeOf(terminal *os.File) runtime.TermSize {
	width, height, err := term.GetSize(int(terminal.Fd()))
	if err != nil {
		return runtime.TermSize{}
	}
	return runtime.TermSize{Width: uint16(width), Height: uint16(height)}
}

// lend makes a person's terminal a container's: its size is told whenever it changes, and with raw every key is
// passed on as it is. It is given back by what is returned.
func lend(ctx context.Context, terminal *os.File, raw bool) (sizes <-chan runtime.TermSize, giveBack func(), err error) {
	restore := func() {}
	if raw {
		old, err := term.MakeRaw(int(terminal.Fd()))
		if err != nil {
			return nil, nil, fmt.Errorf("setting the terminal to raw mode: %w", err)
		}
		restore = func() { _ = term.Restore(int(terminal.Fd()), old) }
	}
	ctx, cancel := context.WithCancel(ctx)
	told := make(chan runtime.TermSize, 1)
	var watching sync.WaitGroup
	watching.Go(func() { watchSize(ctx, terminal, told) })
	return told, func() {
		cancel()
		watching.Wait()
		restore()
	}, nil
}

// watchSize sends the terminal's size now and whenever it changes, until ctx ends.
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
