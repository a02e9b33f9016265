// Package reader loads a manifest with a limit on the time that it takes, so that one manifest cannot
// delay the others. It reads no files: the text is given.
//
// Begin reading at Reader.
package reader

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"podrun.io/podrun/internal/manifest"
)

const (
	// LoadTime is how long a Reader waits for one manifest while others wait for it: many times what any
	// realistic manifest needs, unless the machine is very busy.
	LoadTime = time.Second
	// LoadTimeAlone is how long one waits whose caller reads once only, so that no later call returns the
	// result: a busy machine shall not make a good manifest a bad one.
	LoadTimeAlone = time.Minute
)

// ErrTooSlow reports that loading a manifest was given up, so that other manifests need not wait
// for it.
var ErrTooSlow = errors.New("takes too long to read")

// Reader loads one manifest repeatedly, with a time limit. Its zero value is ready to use. It is
// not safe for concurrent use.
type Reader struct {
	// Limit is how long a load may take; 0: LoadTime.
	Limit time.Duration
	// load replaces manifest.Load in tests.
	load    func([]byte, manifest.LoadOptions) (manifest.Loaded, error)
	pending chan outcome
	// hash is the digest of the data that is being loaded.
	hash string
}

// outcome is the result of manifest.Load.
type outcome struct {
	loaded manifest.Loaded
	err    error
}

// Load calls manifest.Load and gives up with ErrTooSlow after Limit, or when done is closed.
// A load that was given up continues in the background, and a later call with the same data returns
// its result. There is at most one such load: until it ends, each call returns ErrTooSlow.
func (r *Reader) Load(done <-chan struct{}, data []byte, o manifest.LoadOptions) (manifest.Loaded, error) {
	if r.pending != nil {
		select {
		case got := <-r.pending:
			r.pending = nil
			if r.hash == manifest.Digest(data) {
				return got.loaded, got.err
			}
		default:
			return manifest.Loaded{}, r.TooSlow(o.Origin.Path)
		}
	}
	load := r.load
	if load == nil {
		load = manifest.Load
	}
	pending := make(chan outcome, 1)
	r.pending, r.hash = pending, manifest.Digest(data)
	go func() {
		loaded, err := load(data, o)
		pending <- outcome{loaded, err}
	}()
	timer := time.NewTimer(r.limit())
	defer timer.Stop()
	select {
	case got := <-pending:
		r.pending = nil
		return got.loaded, got.err
	case <-timer.C:
	case <-done:
	}
	return manifest.Loaded{}, r.TooSlow(o.Origin.Path)
}

func (r *Reader) limit() time.Duration { return cmp.Or(r.Limit, LoadTime) }

// TooSlow returns the error of Load for a manifest of that name.
func (r *Reader) TooSlow(name string) error {
	if name == manifest.Stdin {
		name = "stdin"
	}
	return fmt.Errorf("%s: %w: more than %v", name, ErrTooSlow, r.limit())
}
