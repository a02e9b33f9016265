package cli

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
)

// Output is the standard output or standard error of a command that must go on when the reader has
// closed the other end of the pipe, as head does, because it still has pods to stop. At the first
// write without a reader, Write calls broken; it discards everything from then on.
type Output struct {
	to     io.Writer
	broken func()

	mu       sync.Mutex
	noReader bool
	err      error // the first error other than EPIPE
}

// Write implements io.Writer. It is safe for concurrent use, and returns no error when there is no
// reader.
func (o *Output) Write(text []byte) (int, error) {
	o.mu.Lock()
	noReader := o.noReader
	o.mu.Unlock()
	if noReader {
		return len(text), nil
	}
	n, err := o.to.Write(text)
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case errors.Is(err, syscall.EPIPE):
		if !o.noReader {
			o.noReader = true
			o.broken()
		}
		return len(text), nil
	case err != nil && o.err == nil:
		o.err = err
	}
	return n, err
}

// Err returns the first error of a write, other than that there is no reader.
func (o *Output) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// IgnoreSIGPIPE lets the process survive a write to a pipe without a reader: the write fails with
// EPIPE. Unless SIGPIPE is handled, Go terminates a process for such a write to standard output or
// standard error. Nothing reads the channel.
func IgnoreSIGPIPE() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// CancelOnBrokenPipe replaces the standard streams of the command so that it is cancelled, as by an
// interrupt, when the reader of its output has closed it, unless the results are known by then. It
// returns the new standard output. Streams that are terminals are not replaced.
func (s *Signals) CancelOnBrokenPipe(streams *Streams, hasResults *atomic.Bool) *Output {
	IgnoreSIGPIPE()
	broken := func() {
		if !hasResults.Load() && s != nil && s.first.CompareAndSwap(0, int32(syscall.SIGPIPE)) {
			s.cancel()
		}
	}
	out := &Output{to: streams.Out, broken: broken}
	if TerminalOf(streams.Out) == nil {
		streams.Out = out
	}
	if TerminalOf(streams.ErrOut) == nil {
		streams.ErrOut = &Output{to: streams.ErrOut, broken: broken}
	}
	return out
}
