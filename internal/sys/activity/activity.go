// Package activity measures for how long nothing is written, so that who waits for the end of an output can tell a
// slow reader, which is waited for, from an output that does not end.
//
// It knows neither what is written nor for whom. Begin reading at Writes.
package activity

import (
	"io"
	"sync"
	"time"
)

// Writes are the writes of one output. Its methods are safe for concurrent use.
type Writes struct {
	// Total is set if all pauses between the writes count together. Otherwise each counts by itself.
	Total bool

	mu      sync.Mutex
	running int
	ended   time.Time     // when the last write ended, or Restart was called
	paused  time.Duration // the pauses before that
}

// Begin begins a write, which lasts until end is called.
func (w *Writes) Begin() (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running == 0 && w.Total {
		w.paused += time.Since(w.ended)
	}
	w.running++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.running--
		w.ended = time.Now()
	}
}

// Writer returns a writer to w whose writes are counted.
func (w *Writes) Writer(to io.Writer) io.Writer { return &writer{w, to} }

type writer struct {
	writes *Writes
	to     io.Writer
}

// Write implements io.Writer.
func (w *writer) Write(text []byte) (int, error) {
	defer w.writes.Begin()()
	return w.to.Write(text)
}

// Restart makes Await count pauses from now on only.
func (w *Writes) Restart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended, w.paused = time.Now(), 0
}

// Await waits until done is closed, which it reports. It gives up when stop is closed, or when the pauses since Restart
// have reached a limit. A write in progress is no pause, however long it takes.
func (w *Writes) Await(done, stop <-chan struct{}, limit time.Duration) bool {
	for {
		left := limit - w.pause()
		if left <= 0 {
			select {
			case <-done:
				return true
			default:
				return false
			}
		}
		timer := time.NewTimer(left)
		select {
		case <-done:
			timer.Stop()
			return true
		case <-stop:
			timer.Stop()
			return false
		case <-timer.C:
		}
	}
}

// Running reports whether a write is in progress.
func (w *Writes) Running() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running > 0
}

func (w *Writes) pause() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running > 0 {
		return w.paused
	}
	return w.paused + time.Since(w.ended)
}
