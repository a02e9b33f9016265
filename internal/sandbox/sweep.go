package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

const (
	// sweepLimit is how many sandboxes Sweep removes concurrently.
	sweepLimit = 8
	// sweepDelay is how long Sweep waits for the removals.
	sweepDelay = time.Second
)

// Sweep removes the sandboxes in the run directory that are not known. known reports whether a
// checkpoint names the sandbox now. Sweep calls it after it has listed the sandboxes, and it must
// return true for one that is being created. A sandbox that cannot be removed, or takes long, does
// not block others. Sweep waits for a second; removals that take longer, for example because a CNI
// plugin hangs, continue in the background.
func (s *Store) Sweep(ctx context.Context, known func(id string) bool) error {
	ids, err := s.dir.remains()
	errs := []error{err}
	var (
		mu       sync.Mutex
		removals sync.WaitGroup
	)
	slots := make(chan struct{}, sweepLimit)
	for _, id := range ids {
		if known(id) {
			continue
		}
		removals.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := s.sweepOne(ctx, id); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("sandbox %s: %w", id, err))
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		removals.Wait()
	}()
	select {
	case <-done:
	case <-time.After(sweepDelay):
		s.log.Warn("removing orphaned sandboxes takes long, it continues in the background")
	}
	mu.Lock()
	defer mu.Unlock()
	if err := errors.Join(append(errs, s.dir.sweepDir())...); err != nil {
		return fmt.Errorf("removing orphaned sandboxes: %w", err)
	}
	return nil
}

// sweepOne removes the sandbox, unless another process has locked it.
func (s *Store) sweepOne(ctx context.Context, id string) error {
	lock, err := s.dir.tryReserve(id)
	if errors.Is(err, sys.ErrLocked) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Unlock()
	if err := s.clear(ctx, pod.Sandbox{ID: id}); err != nil {
		return err
	}
	s.log.Info("orphaned sandbox removed, no checkpoint names it", "sandbox", id)
	return nil
}

// remains returns the IDs of the sandboxes of which any file exists; with an error there may be
// more.
func (d *directory) remains() ([]string, error) {
	found, err := names(d.root)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	ids := make([]string, 0, len(found))
	for _, name := range found {
		ids = append(ids, strings.TrimSuffix(name, intentSuffix))
	}
	slices.Sort(ids)
	return slices.DeleteFunc(slices.Compact(ids), func(id string) bool { return !isID(id) }), err
}

// sweepDir removes the directory of all sandboxes if an interrupted Create or Remove left it empty.
func (d *directory) sweepDir() error {
	all, err := sys.LockExisting(d.root)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer all.Unlock()
	return d.removeEmptyDir()
}
