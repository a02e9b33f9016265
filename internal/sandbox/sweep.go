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
	// sweepLimit is how many sandboxes Sweep removes at a time.
	sweepLimit = 8
	// sweepDelay is how long Sweep waits for what it removes.
	sweepDelay = time.Second
)

// Sweep removes what there is in the run directory for sandboxes that are not known. known
// reports that a checkpoint names the sandbox now; it is called after the sandboxes were listed, and of one
// that is being created it must say true. One sandbox that cannot be removed, or takes long, keeps no other one. Sweep
// waits for a second; removals that take longer, as with a CNI plugin that hangs, go on beside.
func (s *Store) Sweep(ctx context.Context, known func(id string) bool) error {
	ids, err := s.remains()
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
		s.log.Warn("removing sandboxes that no checkpoint names takes long and goes on")
	}
	mu.Lock()
	defer mu.Unlock()
	if err := errors.Join(append(errs, s.sweepDir())...); err != nil {
		return fmt.Errorf("removing sandboxes that no checkpoint names: %w", err)
	}
	return nil
}

// sweepOne removes the sandbox, unless somebody else is about to.
func (s *Store) sweepOne(ctx context.Context, id string) error {
	lock, err := s.tryReserve(id)
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
	s.log.Info("removed a sandbox that no checkpoint names", "sandbox", id)
	return nil
}

// remains are the IDs of the sandboxes of which there is anything; with an error there may be more.
func (s *Store) remains() ([]string, error) {
	found, err := names(s.dir)
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

// sweepDir removes the directory of all sandboxes if a Create or Remove that was cut off left it empty.
func (s *Store) sweepDir() error {
	all, err := sys.LockExisting(s.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer all.Unlock()
	return s.removeEmptyDir()
}
