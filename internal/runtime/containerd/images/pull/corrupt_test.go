package pull

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/containerd/errdefs"
)

// closing simulates a containerd that is still closing content that is to be removed.
type closing struct {
	asked, until int
	then         error
}

func (c *closing) Abort(context.Context, string) error {
	if c.asked++; c.asked <= c.until {
		return errors.New("unlinkat ingest/f7df: directory not empty")
	}
	return c.then
}

func TestAbort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			closing
			fails bool
		}{
			{closing{until: 0}, false}, {closing{until: 3}, false}, {closing{until: 1 << 30}, true},
			{closing{until: 1, then: fmt.Errorf("no such part: %w", errdefs.ErrNotFound)}, false},
		} {
			if err := abort(t.Context(), &c.closing, "layer-sha256:00"); (err != nil) != c.fails {
				t.Errorf("%+v: %v", c.closing, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		stuck := closing{until: 1 << 30}
		if err := abort(ctx, &stuck, "layer-sha256:00"); !errors.Is(err, context.Canceled) || stuck.asked != 1 {
			t.Errorf("given up: %v after %d tries", err, stuck.asked)
		}
	})
}
