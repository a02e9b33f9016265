package exec

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/pkg/cio"

	"podrun.io/podrun/internal/sys/activity"
)

// output is what a command writes, on its way to the caller.
type output struct {
	activity.Writes
	// cut ends the command.
	cut context.CancelCauseFunc
	// abandoned is closed when nothing waits any longer for the write in progress.
	abandoned chan struct{}
	// lost is set if drain gave up during a write, so that the end of the output is lost.
	lost bool
}

// writer returns a writer to w that cuts the command off when a write fails: output that is not read would block the
// command for ever. For a nil w it returns a writer that discards, because a shim needs either all streams or none.
func (o *output) writer(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return &cancellingWriter{o.Writer(w), o.cut}
}

// cancellingWriter is the writer that output.writer returns.
type cancellingWriter struct {
	w   io.Writer
	cut context.CancelCauseFunc
}

// Write never returns an error: the shim, which copies the output too, must not be blocked by a
// writer that fails.
func (w *cancellingWriter) Write(p []byte) (int, error) {
	if _, err := w.w.Write(p); err != nil {
		w.cut(fmt.Errorf("writing a command's output: %w", err))
		w.w = io.Discard
	}
	return len(p), nil
}

// drain waits until all output has been copied, which it reports. It gives up when ctx ends or drainTimeout is over.
func (o *output) drain(ctx context.Context, streams cio.IO) bool {
	done := outputEnd(streams)
	o.Restart()
	if o.Await(done, ctx.Done(), drainTimeout) {
		return true
	}
	o.lost = o.Running()
	streams.Cancel() // ends the copying, and so the goroutine of outputEnd
	select {
	case <-done:
	case <-time.After(blockedTime): // the caller's writer blocks
		close(o.abandoned)
	}
	return false
}

// abandonable returns a creator of streams like creator's, for which nothing waits after drain has given up.
func (o *output) abandonable(creator cio.Creator) cio.Creator {
	o.abandoned = make(chan struct{})
	return func(id string) (cio.IO, error) {
		streams, err := creator(id)
		if err != nil {
			return nil, err
		}
		return &abandonableIO{IO: streams, copied: sync.OnceValue(func() <-chan struct{} { return outputEnd(streams) }),
			abandoned: o.abandoned}, nil
	}
}

// abandonableIO is the result of abandonable.
type abandonableIO struct {
	cio.IO
	copied    func() <-chan struct{}
	abandoned <-chan struct{}
}

// Wait implements cio.IO.
func (a *abandonableIO) Wait() {
	select {
	case <-a.copied():
	case <-a.abandoned:
	}
}
