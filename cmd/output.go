package cmd

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
)

// output is the standard output or standard error of a command that must go on when the reader has
// closed the other end of the pipe, as head does, because it still has pods to stop. At the first
// write without a reader, Write calls broken; it discards everything from then on.
type output struct {
	to     io.Writer
	broken func()

	mu   sync.Mutex
	gone bool
	err  error // the first error other than EPIPE
}

// Write implements io.Writer. It is safe for concurrent use, and returns no error when there is no
// reader.
func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	gone := o.gone
	o.mu.Unlock()
	if gone {
		return len(text), nil
	}
	n, err := o.to.Write(text)
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case errors.Is(err, syscall.EPIPE):
		if !o.gone {
			o.gone = true
			o.broken()
		}
		return len(text), nil
	case err != nil && o.err == nil:
		o.err = err
	}
	return n, err
}

// failed returns the first error of a write, other than that there is no reader.
func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// outlastReaders lets the process survive a write to a pipe without a reader: the write fails with
// EPIPE. Unless SIGPIPE is handled, Go terminates a process for such a write to standard output or
// standard error. Nothing reads the channel.
func outlastReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// untilNobodyReads replaces the standard streams of the command so that it is cancelled, as by an
// interrupt, when the reader of its output has closed it, unless the results are known by then. It
// returns the new standard output. Streams that are terminals are not replaced.
func (a *app) untilNobodyReads(known *atomic.Bool) *output {
	outlastReaders()
	broken := func() {
		if !known.Load() && a.caught != nil && a.caught.CompareAndSwap(0, int32(syscall.SIGPIPE)) {
			a.cancel()
		}
	}
	out := &output{to: a.out, broken: broken}
	if terminalOf(a.out) == nil {
		a.out = out
	}
	if terminalOf(a.errOut) == nil {
		a.errOut = &output{to: a.errOut, broken: broken}
	}
	return out
}
