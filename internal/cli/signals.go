package cli

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
)

// Signals are the signals that ask a command to stop. A nil *Signals is valid: no signal is
// received.
type Signals struct {
	// first is the number of the first signal, or 0 if there was none.
	first atomic.Int32
	// second is closed at the second signal.
	second chan struct{}
	// cancel ends the context of the command.
	cancel context.CancelFunc
}

// HandleSignals returns a context that is cancelled at the first SIGINT, SIGTERM or SIGHUP. SIGHUP
// has no effect if it is ignored, as under nohup. The second signal closes Second, and the third
// one terminates the process. The caller must call stop.
func HandleSignals(ctx context.Context) (_ context.Context, s *Signals, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	s = &Signals{second: make(chan struct{}), cancel: cancel}
	received := make(chan os.Signal, 2)
	signal.Notify(received, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(received, syscall.SIGHUP)
	}
	ended := make(chan struct{})
	var handling sync.WaitGroup
	handling.Go(func() { s.handle(received, ended) })
	return ctx, s, func() {
		signal.Stop(received)
		close(ended)
		handling.Wait()
		cancel()
	}
}

// handle reacts to the first two signals that are received before ended is closed.
func (s *Signals) handle(received chan os.Signal, ended <-chan struct{}) {
	for _, then := range []func(os.Signal){
		func(caught os.Signal) {
			if number, is := caught.(syscall.Signal); is {
				s.first.Store(int32(number))
			}
			s.cancel()
		},
		func(os.Signal) { close(s.second) },
	} {
		select {
		case caught := <-received:
			then(caught)
		case <-ended:
			return
		}
	}
	signal.Stop(received)
}

// Second returns a channel that is closed at the second signal.
func (s *Signals) Second() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.second
}

// ExitCode returns the exit code of an interrupted command: 128 plus the number of SIGTERM or
// SIGPIPE, as shells do, and that of SIGINT for all other signals.
func (s *Signals) ExitCode() int {
	if s == nil {
		return ExitInterrupted
	}
	switch syscall.Signal(s.first.Load()) {
	case syscall.SIGTERM:
		return ExitTerminated
	case syscall.SIGPIPE:
		return ExitBrokenPipe
	default:
		return ExitInterrupted
	}
}

// Next returns a channel that is closed at the next interrupt: when ctx, the context of the
// command, ends or, if it has ended already, at the second signal.
func (s *Signals) Next(ctx context.Context) <-chan struct{} {
	if ctx.Err() != nil {
		return s.Second()
	}
	return ctx.Done()
}

// UntilNext calls f and returns when f returns or at the next interrupt, because f may hang in a
// write that nobody reads.
func (s *Signals) UntilNext(ctx context.Context, f func()) {
	interrupted := s.Next(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-interrupted:
	}
}
