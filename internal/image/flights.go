package image

import (
	"context"
	"sync"

	"podrun.io/podrun/internal/runtime"
)

// Flights let all who want the same image at the same time wait for one pull. The zero value is ready.
type Flights struct {
	mu     sync.Mutex
	byName map[string]*flight
}

// flight is one pull. Its results may be read once done is closed.
type flight struct {
	done  chan struct{}
	image runtime.Image
	err   error
	// cut says that who pulled gave up, so that nothing is known.
	cut bool
}

// Pull pulls the image, or waits for whoever is pulling it already. When that one gives up, another who
// waits goes on with the pull.
func (f *Flights) Pull(ctx context.Context, name string, pull func(context.Context) (runtime.Image, error)) (runtime.Image, error) {
	for {
		own, other := f.board(name)
		if other == nil {
			own.image, own.err = pull(ctx)
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
			return runtime.Image{}, ctx.Err()
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
	own = &flight{done: make(chan struct{})}
	f.byName[name] = own
	return own, nil
}
