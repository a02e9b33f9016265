package activity

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// TestAwait: a write in progress is waited for, and pauses are bounded, each by itself or together.
func TestAwait(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		total bool
		// write and pause alternate until the output ends after their count.
		write, pause time.Duration
		count        int
		stop         time.Duration
		done         bool
		after        time.Duration
	}{
		"long writes":         {write: time.Minute, pause: time.Second, count: 5, done: true, after: 305 * time.Second},
		"long writes, total":  {true, time.Minute, 100 * time.Millisecond, 5, 0, true, 300*time.Second + 500*time.Millisecond},
		"short writes":        {write: time.Millisecond, pause: time.Second, count: 1000, done: true, after: 1001 * time.Second},
		"short writes, total": {total: true, write: time.Millisecond, pause: time.Second, count: 1000, after: 2*time.Second + time.Millisecond},
		"none":                {pause: time.Hour, count: 1, after: 2 * time.Second},
		"a stop":              {write: time.Hour, count: 1, stop: time.Minute, after: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &Writes{Total: c.total}
				done, stop := make(chan struct{}), make(chan struct{})
				w.Restart()
				go func() {
					defer close(done)
					for range c.count {
						time.Sleep(c.pause)
						if c.write > 0 {
							_, _ = w.Writer(slow{c.write}).Write(nil)
						}
					}
				}()
				if c.stop > 0 {
					time.AfterFunc(c.stop, func() { close(stop) })
				}
				began := time.Now()
				ended := w.Await(done, stop, 2*time.Second)
				if after := time.Since(began); ended != c.done || after != c.after {
					t.Errorf("%t after %s, want %t after %s", ended, after, c.done, c.after)
				}
				<-done
			})
		})
	}
}

// slow is a writer that takes its time.
type slow struct{ time.Duration }

func (s slow) Write(text []byte) (int, error) {
	time.Sleep(s.Duration)
	return io.Discard.Write(text)
}
