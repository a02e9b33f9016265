package network

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"podrun.io/podrun/internal/network/cni"
	"podrun.io/podrun/internal/sys"
)

const (
	// releaseTries is at which failure in a row Teardown stops waiting for missing plugins and
	// succeeds without a release.
	releaseTries = 3
	// sweepsAtOnce is how many lost sandboxes are released concurrently.
	sweepsAtOnce = 8
)

// Teardown releases everything that Setup reserved for id. It does not wait for other IDs. It waits
// for the plugins until ctx ends, at most for cni.Plugins.DelLimit, a minute. An error leaves id's
// record, so that the next call tries again.
//
// Two kinds of failures are not errors, so that they do not keep the sandbox: the plugins connected
// it in an earlier boot, of which the kernel has nothing left; or the plugins are not installed any
// more at the third attempt. The record then stays, and SweepLost tries again.
func (n *Network) Teardown(ctx context.Context, id string) error {
	err := n.plugins.Teardown(ctx, id)
	if err != nil && n.mayPostpone(ctx, id, err) {
		err = nil
	} else if err == nil {
		n.retries.succeeded(id)
	}
	if err != nil {
		return fmt.Errorf("releasing the pod's network: %w", err)
	}
	return n.bridge.Teardown(ctx, id)
}

// mayPostpone counts the failure and reports whether Teardown goes on without a release.
func (n *Network) mayPostpone(ctx context.Context, id string, err error) bool {
	var failed *cni.ReleaseError
	if !errors.As(err, &failed) || ctx.Err() != nil {
		return false
	}
	tries := n.retries.failed(id)
	if !failed.FormerBoot && (!failed.Impossible || tries < releaseTries) {
		return false
	}
	n.log.Warn("CNI plugins did not release a sandbox; it is removed, and its release is tried again later",
		"sandbox", id, "record", n.plugins.RecordPath(id), "err", err)
	return true
}

// Holders returns the IDs for which something is reserved, sorted. It takes no lock, so it never
// waits.
func (n *Network) Holders() ([]string, error) {
	plugged, pluggedErr := n.plugins.Holders()
	bridged, bridgedErr := n.bridge.Holders()
	ids := slices.Concat(plugged, bridged)
	slices.Sort(ids)
	return slices.Compact(ids), errors.Join(pluggedErr, bridgedErr)
}

// SweepLost releases what is reserved for IDs that are not known. An ID must be known before Setup
// is called for it. Each ID is released separately, bounded as in Teardown, several concurrently.
// The error joins the errors of all IDs that failed now. A failed ID is skipped for 10 s, then for
// twice as long each time, up to 5 minutes, and keeps what is reserved for it; its first failure is
// logged as a warning.
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

// sweep releases one lost ID.
func (n *Network) sweep(ctx context.Context, id string, known func(id string) bool) error {
	err := n.plugins.Sweep(ctx, id, known)
	if errors.Is(err, sys.ErrLocked) {
		return nil // another call releases it
	}
	if err == nil {
		err = n.bridge.Sweep(ctx, id, known)
	}
	switch {
	case err == nil && known(id):
	case err == nil:
		n.retries.succeeded(id)
		n.log.Info("network of a lost sandbox was released", "sandbox", id)
	case ctx.Err() != nil:
	case n.retries.failed(id) == 1:
		n.log.Warn("network of a lost sandbox was not released; trying again later", "sandbox", id, "err", err)
	default:
		n.log.Debug("network of a lost sandbox was not released; trying again later", "sandbox", id, "err", err)
	}
	return err
}
