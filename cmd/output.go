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

// output is where a command writes that is not ended when nobody reads that any more, as after "| head": it has pods to
// end. Then broken is called, once, and what else is written is lost.
type output struct {
	to     io.Writer
	broken func()

	mu   sync.Mutex
	gone bool
	err  error // the first one, but that nobody reads it
}

// Write implements io.Writer.
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

// failed returns why something that was to be written is not.
func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// outlastReaders has a pipe without a reader end nothing but the writing. The channel is never read: Go ends a process
// that nobody has told what to do about it.
func outlastReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// untilNobodyReads has the command's context end, as by an interrupt, when nobody reads what it writes any more, unless
// its results are known by then. It returns its standard output. Terminals stay what they are.
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
