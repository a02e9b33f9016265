package image

import (
	"context"
	"strings"
	"sync"
	"time"

	"podrun.io/podrun/internal/pod"
)

// Flights let all who want the same image at the same time wait for one pull. The zero value is ready.
type Flights struct {
	mu     sync.Mutex
	byName map[string]*flight
}

// flight is one pull. Its results may be read once done is closed.
type flight struct {
	done  chan struct{}
	meter *Meter
	image pod.Image
	err   error
	// cut says that who pulled gave up, so that nothing is known.
	cut bool
}

// Pull pulls the image under name, which may end in a space and a key that tells one pull of it from another, or
// waits for whoever is pulling it already. When that one gives up, another who waits goes on with the pull.
func (f *Flights) Pull(ctx context.Context, name string, pull func(context.Context, *Meter) (pod.Image, error)) (pod.Image, error) {
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

// board returns a new flight, or that of another who is on the way.
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

// Progress tells how far a pull of the image is; false: there is none.
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
