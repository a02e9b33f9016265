package connection

import (
	"context"
	"errors"
	"time"
)

// networkSweep is how often the network resources of removed sandboxes are released: CNI plugins
// that refused a release before may accept it later.
const networkSweep = 5 * time.Minute

// SweepNetwork periodically removes sandboxes that no checkpoint names, and calls lost to release their network
// resources, until ctx ends. A pass may take long; nothing waits for it.
func (c *Connection) SweepNetwork(
	ctx context.Context, lost func(ctx context.Context, known func(id string) bool) error,
) {
	for {
		known, err := c.Runtime.Retained(ctx)
		if err == nil {
			err = errors.Join(c.Sandboxes.Sweep(ctx, known), lost(ctx, known))
		}
		if err != nil && ctx.Err() == nil {
			c.o.Log.Warn("removing lost sandboxes or their network resources failed; retrying later", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(networkSweep):
		}
	}
}
