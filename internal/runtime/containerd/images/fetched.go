package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/v2/core/leases"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/sys"
)

// keepFetched is for how long what an interrupted pull has fetched is kept for the next one.
const keepFetched = 24 * time.Hour

// The labels of leases that keep what is fetched: the image, and where the locks are of those that are under way.
const (
	labelFetching      = "podrun.io/fetching"
	labelFetchingLocks = "podrun.io/fetching-locks"
)

// fetching keeps what a pull fetches, and what earlier ones that were interrupted did, from being collected.
type fetching struct {
	store *Store
	lease leases.Lease
	lock  *sys.Lock
	// before says that there was something of earlier pulls.
	before bool
}

// fetch begins to keep what a pull of the image fetches, until it is over or, if it is interrupted, until a later pull of
// it is, for keepFetched, or until DropFetched.
func (s *Store) fetch(ctx context.Context, name string) (context.Context, *fetching, error) {
	f := &fetching{store: s}
	lease, err := s.client.LeasesService().Create(ctx, leases.WithRandomID(), leases.WithExpiration(keepFetched), func(l *leases.Lease) error {
		var err error
		// Before there is a lease, so that there is none of a pull that is under way without its lock.
		f.lock, err = s.lockFetching(l.ID)
		l.Labels[labelFetching], l.Labels[labelFetchingLocks] = name, s.o.Dirs.Fetching()
		return err
	})
	if err != nil {
		f.unlock()
		return nil, nil, daemon.Mapped("pulling image "+name, err)
	}
	f.lease = lease
	if err := f.takeOver(ctx, name); err != nil {
		s.o.Log.Debug("what was fetched of an image before may be fetched again", "image", name, "why", err)
	}
	return leases.WithLease(ctx, lease.ID), f, nil
}

func (s *Store) lockFetching(id string) (*sys.Lock, error) {
	// A load may be the first that podrun does here: what is above is made as serve makes it.
	if err := errors.Join(os.MkdirAll(filepath.Dir(s.o.Dirs.Fetching()), layout.ModePassable), os.MkdirAll(s.o.Dirs.Fetching(), 0o700)); err != nil {
		return nil, err
	}
	return sys.TryLockDir(filepath.Join(s.o.Dirs.Fetching(), id), 0o700)
}

// unlock says that the pull is not under way any more.
func (f *fetching) unlock() {
	if f.lock != nil {
		_ = os.Remove(f.lock.Path()) // as long as it is locked, so that nobody else's is removed
		f.lock.Unlock()
	}
}

// takeOver keeps, under this pull's lease, what interrupted pulls of the image have fetched.
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

// end ends the keeping of what was fetched if that is over: the image is there, or nothing was fetched.
func (f *fetching) end(ctx context.Context, over bool) {
	if over {
		clean, cancel := daemon.CleanupContext(ctx)
		defer cancel()
		_ = f.store.client.LeasesService().Delete(clean, f.lease) // it expires by itself
	}
	f.unlock()
}

// idleFetching are the leases of pulls that are not under way, locked until they are unlocked. A pull of a process that
// was killed is not under way.
func (s *Store) idleFetching(ctx context.Context, filter string) ([]*fetching, error) {
	all, err := s.client.LeasesService().List(ctx, fmt.Sprintf("labels.%q==%q", labelFetchingLocks, s.o.Dirs.Fetching())+filter)
	if err != nil {
		return nil, err
	}
	var idle []*fetching
	for _, lease := range all {
		if lock, err := s.lockFetching(lease.ID); err == nil {
			idle = append(idle, &fetching{store: s, lease: lease, lock: lock})
		} else if !errors.Is(err, sys.ErrLocked) {
			s.o.Log.Debug("it is not known whether a pull is under way", "lease", lease.ID, "why", err)
		}
	}
	return idle, nil
}

// DropFetched lets go of what interrupted pulls have fetched, but for those that are under way, whoever began them,
// and returns of how many. The space is free when it returns.
func (s *Store) DropFetched(ctx context.Context) (int, error) {
	ctx = s.client.Context(ctx)
	idle, err := s.idleFetching(ctx, "")
	if err != nil {
		return 0, daemon.Mapped("looking for what interrupted pulls have fetched", err)
	}
	var errs []error
	for n, i := range idle {
		var opts []leases.DeleteOpt
		if n == len(idle)-1 {
			opts = append(opts, leases.SynchronousDelete)
		}
		if err := s.client.LeasesService().Delete(ctx, i.lease, opts...); err != nil && !daemon.IsNotFound(err) {
			errs = append(errs, daemon.Mapped("dropping what an interrupted pull has fetched", err))
		}
		i.unlock()
	}
	return len(idle) - len(errs), errors.Join(errs...)
}
