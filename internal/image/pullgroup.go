package image

import (
	"context"
	"strings"
	"sync"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/trace"
)

// PullGroup merges concurrent pulls of the same image into one. The zero value is ready to use.
type PullGroup struct {
	mu     sync.Mutex
	byName map[string]*call
}

// call is one pull. Its results may be read after done is closed.
type call struct {
	done  chan struct{}
	meter *Meter
	image pod.Image
	err   error
	// cancelled reports that the caller that pulled has given up, so that there is no result.
	cancelled bool
}

// Pull pulls the image with pull, or waits for a pull with the same name that is in progress and
// returns its result. name is the image's name, optionally followed by a space and a key that
// distinguishes pulls of the same image. If the context of the caller that pulls ends, one of the
// waiting callers pulls instead.
func (g *PullGroup) Pull(
	ctx context.Context, name string, pull func(context.Context, *Meter) (pod.Image, error),
) (pod.Image, error) {
	for {
		own, other := g.join(name)
		if other == nil {
			own.meter.OnFetched(trace.Of(ctx).Fetched)
			if own.image, own.err = pull(ctx, own.meter); own.err == nil {
				own.meter.Pulled()
			}
			own.cancelled = own.err != nil && ctx.Err() != nil
			g.mu.Lock()
			delete(g.byName, name)
			g.mu.Unlock()
			close(own.done)
			return own.image, own.err
		}
		other.meter.OnFetched(trace.Of(ctx).Fetched)
		select {
		case <-other.done:
			if !other.cancelled {
				return other.image, other.err
			}
		case <-ctx.Done():
			return pod.Image{}, ctx.Err()
		}
	}
}

// join returns a new call for this caller, or the existing call of another one.
func (g *PullGroup) join(name string) (own, other *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if other = g.byName[name]; other != nil {
		return nil, other
	}
	if g.byName == nil {
		g.byName = map[string]*call{}
	}
	own = &call{done: make(chan struct{}), meter: NewMeter(time.Now())}
	g.byName[name] = own
	return own, nil
}

// Progress returns the progress of a pull of the image; false if there is none.
func (g *PullGroup) Progress(name string) (pod.Progress, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, one := range g.byName {
		if key == name || strings.HasPrefix(key, name+" ") {
			return one.meter.Progress(time.Now()), true
		}
	}
	return pod.Progress{}, false
}
