package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/v2/core/leases"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/sys"
)

// keepFetched is how long the content that an interrupted pull has fetched is kept for the next
// pull.
const keepFetched = 24 * time.Hour

// Labels of the leases that protect fetched content: the name of the image, and the directory of
// the locks of pulls in progress.
const (
	labelFetching      = "podrun.io/fetching"
	labelFetchingLocks = "podrun.io/fetching-locks"
)

// fetching protects the content that a pull fetches, and what earlier interrupted pulls fetched,
// from garbage collection.
type fetching struct {
	store *Store
	lease leases.Lease
	lock  *sys.Lock
	// before means that earlier pulls had fetched something.
	before bool
}

// fetch creates a lease that protects what a pull of the image fetches. The lease exists until the
// pull has completed; if the pull is interrupted, until a later pull of the image has completed,
// for keepFetched, or until DropFetched.
func (s *Store) fetch(ctx context.Context, name string) (context.Context, *fetching, error) {
	f := &fetching{store: s}
	lease, err := s.client.LeasesService().Create(ctx, leases.WithRandomID(), leases.WithExpiration(keepFetched),
		func(l *leases.Lease) error {
			var err error
			// Lock before the lease exists, so that no lease of a pull in progress is without its lock.
			f.lock, err = s.lockFetching(l.ID)
			l.Labels[labelFetching], l.Labels[labelFetchingLocks] = name, s.o.Dirs.ImageFiles().Fetching()
			return err
		})
	if err != nil {
		f.unlock()
		return nil, nil, daemon.Mapped("pulling image "+name, err)
	}
	f.lease = lease
	if err := f.takeOver(ctx, name); err != nil {
		s.o.Log.Debug("content of interrupted pulls cannot be reused; it may be fetched again",
			"image", name, "err", err)
	}
	return leases.WithLease(ctx, lease.ID), f, nil
}

// lockFetching locks the directory that stands for the pull with the given lease.
func (s *Store) lockFetching(id string) (*sys.Lock, error) {
	// A load may be the first thing that podrun does here: the parent directory gets the mode that
	// serve gives it.
	if err := errors.Join(
		os.MkdirAll(filepath.Dir(s.o.Dirs.ImageFiles().Fetching()), layout.ModePassable),
		os.MkdirAll(s.o.Dirs.ImageFiles().Fetching(), 0o700),
	); err != nil {
		return nil, err
	}
	return sys.TryLockDir(filepath.Join(s.o.Dirs.ImageFiles().Fetching(), id), 0o700)
}

// unlock releases the lock: the pull is not in progress any more.
func (f *fetching) unlock() {
	if f.lock != nil {
		_ = os.Remove(f.lock.Path()) // while it is locked, so that no other process's lock is removed
		f.lock.Unlock()
	}
}

// takeOver adds what interrupted pulls of the image have fetched to this pull's lease.
func (f *fetching) takeOver(ctx context.Context, name string) error {
	kept := f.store.client.LeasesService()
	idle, err := f.store.idleFetching(ctx, fmt.Sprintf(",labels.%q==%q", labelFetching, name))
	if err != nil {
		return err
	}
	for _, i := range idle {
		held, err := kept.ListResources(ctx, i.lease)
		for _, one := range held {
			err = errors.Join(err, kept.AddResource(ctx, f.lease, one))
			f.before = true
		}
		if err == nil {
			err = kept.Delete(ctx, i.lease)
		}
		i.unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// end releases the lock. If over is set, because the pull has completed or nothing was fetched, it
// also deletes the lease.
func (f *fetching) end(ctx context.Context, over bool) {
	if over {
		clean, cancel := daemon.CleanupContext(ctx)
		defer cancel()
		_ = f.store.client.LeasesService().Delete(clean, f.lease) // it expires by itself
	}
	f.unlock()
}

// idleFetching returns the leases of pulls that are not in progress, each locked until its unlock
// is called. A pull whose process was killed is not in progress.
func (s *Store) idleFetching(ctx context.Context, filter string) ([]*fetching, error) {
	all, err := s.client.LeasesService().List(ctx,
		fmt.Sprintf("labels.%q==%q", labelFetchingLocks, s.o.Dirs.ImageFiles().Fetching())+filter)
	if err != nil {
		return nil, err
	}
	var idle []*fetching
	for _, lease := range all {
		if lock, err := s.lockFetching(lease.ID); err == nil {
			idle = append(idle, &fetching{store: s, lease: lease, lock: lock})
		} else if !errors.Is(err, sys.ErrLocked) {
			s.o.Log.Debug("lock of a pull cannot be checked; its content is kept", "lease", lease.ID, "err", err)
		}
	}
	return idle, nil
}

// DropFetched releases what interrupted pulls have fetched, except for pulls that are in progress
// in any process, and returns the number of pulls. The disk space is free when it returns.
func (s *Store) DropFetched(ctx context.Context) (int, error) {
	ctx = s.client.Context(ctx)
	idle, err := s.idleFetching(ctx, "")
	if err != nil {
		return 0, daemon.Mapped("listing the content of interrupted pulls", err)
	}
	var errs []error
	for n, i := range idle {
		var opts []leases.DeleteOpt
		if n == len(idle)-1 {
			opts = append(opts, leases.SynchronousDelete)
		}
		if err := s.client.LeasesService().Delete(ctx, i.lease, opts...); err != nil && !daemon.IsNotFound(err) {
			errs = append(errs, daemon.Mapped("removing the content of an interrupted pull", err))
		}
		i.unlock()
	}
	return len(idle) - len(errs), errors.Join(errs...)
}
