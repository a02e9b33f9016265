package exec

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/containerd/v2/pkg/cio"

	"podrun.io/podrun/internal/sys/activity"
)

// streams are the output of a command, which copy copies until it ends or is cancelled.
type streams struct {
	cio.IO
	copying sync.WaitGroup
	ctx     context.Context
	Cut     context.CancelFunc
}

func (s *streams) Wait()   { s.copying.Wait() }
func (s *streams) Cancel() { s.Cut() }

// writerFunc is a function as a writer.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(text []byte) (int, error) { return f(text) }

// TestDrain: once a command has exited, a slow reader gets all of its output, and a child that holds the output open
// is not waited for, whether it writes or not. The end of the caller ends the wait even if a write blocks. A write that
// fails is an error, as before.
func TestDrain(t *testing.T) {
	t.Parallel()
	const (
		pieces   = 8
		tooLong  = time.Hour
		deadline = time.Minute // of the caller
	)
	full := errors.New("no space")
	slowly := func(text []byte) (int, error) {
		time.Sleep(5 * time.Second)
		return len(text), nil
	}
	for name, c := range map[string]struct {
		write  writerFunc
		pieces int
		pause  time.Duration // between two pieces
		want   bool
		most   time.Duration
		cause  error
	}{
		"a slow reader":               {slowly, pieces, 0, true, 5 * pieces * time.Second, nil},
		"a silent child":              {slowly, 1, tooLong, false, 3 * time.Second, nil},
		"a child that writes forever": {io.Discard.Write, 1 << 20, 100 * time.Millisecond, false, 3 * time.Second, nil},
		"a write fails":               {func([]byte) (int, error) { return 0, full }, pieces, 0, false, 0, full},
		"nobody reads": {func([]byte) (int, error) {
			time.Sleep(tooLong)
			return 0, nil
		}, 1, 0, false, deadline + blockedTime, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cut := context.WithCancelCause(t.Context())
				defer cut(nil)
				time.AfterFunc(deadline, func() { cut(context.DeadlineExceeded) })
				o := &output{Writes: activity.Writes{Total: true}, cut: cut}
				s := &streams{}
				s.ctx, s.Cut = context.WithCancel(context.Background())
				w := o.writer(c.write)
				all, _ := o.abandonable(func(string) (cio.IO, error) { return s, nil })("id")
				s.copying.Go(func() {
					for range c.pieces {
						select {
						case <-time.After(c.pause):
						case <-s.ctx.Done():
							return
						}
						_, _ = w.Write(nil)
					}
				})
				began := time.Now()
				if got := o.drain(ctx, all); got != c.want && !errors.Is(c.cause, full) {
					t.Errorf("all output is copied: %t", got)
				}
				if lost := errors.Is(c.cause, context.DeadlineExceeded); o.lost != lost {
					t.Errorf("output is lost: %t, want %t", o.lost, lost)
				}
				all.Wait()
				if after := time.Since(began); after > c.most {
					t.Errorf("it took %s", after)
				}
				if err := context.Cause(ctx); !errors.Is(err, c.cause) {
					t.Errorf("error %v, want %v", err, c.cause)
				}
				s.Cut()
				s.Wait()
			})
		})
	}
}
