package network

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"podrun.io/podrun/internal/sys"
)

const (
	// releaseTries is how often a sandbox's plugins may be missing before Teardown goes on without them.
	releaseTries = 3
	// sweepsAtOnce is how many lost sandboxes are released at a time.
	sweepsAtOnce = 8
)

// Teardown releases whatever Setup took for id. It waits for no other id, and for the plugins as long as ctx lets it,
// at most for a minute. An error leaves id's record, so that the next call tries again.
//
// Two failures of the plugins do not keep the sandbox: if they connected it in an earlier boot, of which the kernel
// has nothing left, and if they are not installed any more at the third try. Then the record stays for SweepLost.
func (n *Network) Teardown(ctx context.Context, id string) error {
	err := n.plugins.teardown(ctx, id)
	if err != nil && n.postponed(ctx, id, err) {
		err = nil
	} else if err == nil {
		n.retries.succeeded(id)
	}
	if err != nil {
		return fmt.Errorf("releasing the pod's network: %w", err)
	}
	return n.bridge.Teardown(ctx, id)
}

// postponed counts the failure and reports whether the sandbox goes without a release.
func (n *Network) postponed(ctx context.Context, id string, err error) bool {
	var failed *releaseError
	if !errors.As(err, &failed) || ctx.Err() != nil {
		return false
	}
	tries := n.retries.failed(id)
	if !failed.formerBoot && (!failed.impossible || tries < releaseTries) {
		return false
	}
	n.log.Warn("CNI's plugins did not release a sandbox; it goes without, and they are called again later",
		"sandbox", id, "record", n.plugins.record(id), "why", err)
	return true
}

// Holders returns the ids for which something is taken. It waits for nobody.
func (n *Network) Holders() ([]string, error) {
	plugged, pluggedErr := n.plugins.holders()
	bridged, bridgedErr := n.bridge.Holders()
	ids := slices.Concat(plugged, bridged)
	slices.Sort(ids)
	return slices.Compact(ids), errors.Join(pluggedErr, bridgedErr)
}

// SweepLost releases what is taken for ids that are not known. An id must be known before Setup is called for it.
// Each is released for itself, bounded as in Teardown, several at a time; the error joins those of all that failed
// now. One that failed is left out for 10 s, then for twice as long each time, up to 5 minutes; the first failure is
// logged. What is taken for it stays until then.
func (n *Network) SweepLost(ctx context.Context, known func(id string) bool) error {
	ids, err := n.Holders()
	var (
		mu      sync.Mutex
		errs    = []error{err}
		slots   = make(chan struct{}, sweepsAtOnce)
		workers sync.WaitGroup
	)
	for _, id := range ids {
		if known(id) || !n.retries.due(id) {
			continue
		}
		workers.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := n.sweep(ctx, id, known); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("releasing the network of lost sandbox %s: %w", id, err))
			}
		})
	}
	workers.Wait()
	return errors.Join(errs...)
}

// sweep releases one lost id.
func (n *Network) sweep(ctx context.Context, id string, known func(id string) bool) error {
	err := n.plugins.sweep(ctx, id, known)
	if errors.Is(err, sys.ErrLocked) {
		return nil // somebody else does it
	}
	if err == nil {
		err = n.bridge.teardown(ctx, id, known)
	}
	switch {
	case err == nil && known(id):
	case err == nil:
		n.retries.succeeded(id)
		n.log.Info("released the network of a lost sandbox", "sandbox", id)
	case ctx.Err() != nil:
	case n.retries.failed(id) == 1:
		n.log.Warn("the network of a lost sandbox is not released; trying again later", "sandbox", id, "why", err)
	default:
		n.log.Debug("the network of a lost sandbox is not released; trying again later", "sandbox", id, "why", err)
	}
	return err
}
