package image

import (
	"context"
	"strings"
	"sync"
	"time"

	"podrun.io/podrun/internal/pod"
)

// Flights merges concurrent pulls of the same image into one. The zero value is ready to use.
type Flights struct {
	mu     sync.Mutex
	byName map[string]*flight
}

// flight is one pull. Its results may be read after done is closed.
type flight struct {
	done  chan struct{}
	meter *Meter
	image pod.Image
	err   error
	// cut reports that the caller that pulled has given up, so that there is no result.
	cut bool
}

// Pull pulls the image with pull, or waits for a pull with the same name that is in progress and
// returns its result. name is the image's name, optionally followed by a space and a key that
// distinguishes pulls of the same image. If the context of the caller that pulls ends, one of the
// waiting callers pulls instead.
func (f *Flights) Pull(
	ctx context.Context, name string, pull func(context.Context, *Meter) (pod.Image, error),
) (pod.Image, error) {
	for {
		own, other := f.board(name)
		if other == nil {
			own.image, own.err = pull(ctx, own.meter)
			own.cut = own.err != nil && ctx.Err() != nil
			f.mu.Lock()
			delete(f.byName, name)
			f.mu.Unlock()
			close(own.done)
			return own.image, own.err
		}
		select {
		case <-other.done:
			if !other.cut {
				return other.image, other.err
			}
		case <-ctx.Done():
			return pod.Image{}, ctx.Err()
		}
	}
}

// board returns a new flight for this caller, or the existing flight of another one.
func (f *Flights) board(name string) (own, other *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if other = f.byName[name]; other != nil {
		return nil, other
	}
	if f.byName == nil {
		f.byName = map[string]*flight{}
	}
	own = &flight{done: make(chan struct{}), meter: NewMeter(time.Now())}
	f.byName[name] = own
	return own, nil
}

// Progress returns the progress of a pull of the image; false if there is none.
func (f *Flights) Progress(name string) (pod.Progress, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, one := range f.byName {
		if key == name || strings.HasPrefix(key, name+" ") {
			return one.meter.Progress(time.Now()), true
		}
	}
	return pod.Progress{}, false
}
