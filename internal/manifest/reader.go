package manifest

import (
	"errors"
	"fmt"
	"time"
)

// LoadTime is how long one manifest is waited for: many times what any needs that is meant to be run.
const LoadTime = time.Second

// ErrTooSlow says that a manifest was given up, so that others need not wait for it.
var ErrTooSlow = errors.New("takes too long to read")

// Reader loads one manifest again and again. It is for one goroutine at a time; its zero value is ready.
type Reader struct {
	// load stands in for Load in tests.
	load    func([]byte, LoadOptions) (Loaded, error)
	pending chan outcome
	// hash is of what is being loaded.
	hash string
}

// outcome is what Load returned.
type outcome struct {
	loaded Loaded
	err    error
}

// Load is Load that is given up, with ErrTooSlow, after LoadTime or when done is closed. What was given up goes on
// beside, never more than one at a time, and a later call with the same data returns it.
func (r *Reader) Load(done <-chan struct{}, data []byte, o LoadOptions) (Loaded, error) {
	if r.pending != nil {
		select {
		case got := <-r.pending:
			r.pending = nil
			if r.hash == Digest(data) {
				return got.loaded, got.err
			}
		default:
			return Loaded{}, tooSlow(o)
		}
	}
	load := r.load
	if load == nil {
		load = Load
	}
	pending := make(chan outcome, 1)
	r.pending, r.hash = pending, Digest(data)
	go func() {
		loaded, err := load(data, o)
		pending <- outcome{loaded, err}
	}()
	timer := time.NewTimer(LoadTime)
	defer timer.Stop()
	select {
	case got := <-pending:
		r.pending = nil
		return got.loaded, got.err
	case <-timer.C:
	case <-done:
	}
	return Loaded{}, tooSlow(o)
}

func tooSlow(o LoadOptions) error {
	path := o.Origin.Path
	if path == Stdin {
		path = "stdin"
	}
	return fmt.Errorf("%s: %w: more than %v", path, ErrTooSlow, LoadTime)
}
