package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/v2/core/leases"

	"podrun.io/podrun/internal/host"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
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
	r     *Runtime
	lease leases.Lease
	lock  *host.Lock
	// before says that there was something of earlier pulls.
	before bool
}

// fetch begins to keep what a pull of the image fetches, until it is over or, if it is interrupted, until a later pull of
// it is, for keepFetched, or until DropFetched.
func (r *Runtime) fetch(ctx context.Context, name string) (context.Context, *fetching, error) {
	f := &fetching{r: r}
	lease, err := r.client.LeasesService().Create(ctx, leases.WithRandomID(), leases.WithExpiration(keepFetched), func(l *leases.Lease) error {
		var err error
		// Before there is a lease, so that there is none of a pull that is under way without its lock.
		f.lock, err = r.lockFetching(l.ID)
		l.Labels[labelFetching], l.Labels[labelFetchingLocks] = name, r.Dirs.Fetching()
		return err
	})
	if err != nil {
		f.unlock()
		return nil, nil, daemon.Mapped("pulling image "+name, err)
	}
	f.lease = lease
	if err := f.takeOver(ctx, name); err != nil {
		r.Log.Debug("what was fetched of an image before may be fetched again", "image", name, "why", err)
	}
	return leases.WithLease(ctx, lease.ID), f, nil
}

func (r *Runtime) lockFetching(id string) (*host.Lock, error) {
	// A load may be the first that podrun does here: what is above is made as serve makes it.
	if err := errors.Join(os.MkdirAll(filepath.Dir(r.Dirs.Fetching()), 0o755), os.MkdirAll(r.Dirs.Fetching(), 0o700)); err != nil {
		return nil, err
	}
	return host.TryLockDir(filepath.Join(r.Dirs.Fetching(), id), 0o700)
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
	store := f.r.client.LeasesService()
	idle, err := f.r.idleFetching(ctx, fmt.Sprintf(",labels.%q==%q", labelFetching, name))
	if err != nil {
		return err
	}
	for _, i := range idle {
		held, err := store.ListResources(ctx, i.lease)
		for _, one := range held {
			err = errors.Join(err, store.AddResource(ctx, f.lease, one))
			f.before = true
		}
		if err == nil {
			err = store.Delete(ctx, i.lease)
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
		_ = f.r.client.LeasesService().Delete(clean, f.lease) // it expires by itself
	}
	f.unlock()
}

// idleFetching are the leases of pulls that are not under way, locked until they are unlocked. A pull of a process that
// was killed is not under way.
func (r *Runtime) idleFetching(ctx context.Context, filter string) ([]*fetching, error) {
	all, err := r.client.LeasesService().List(ctx, fmt.Sprintf("labels.%q==%q", labelFetchingLocks, r.Dirs.Fetching())+filter)
	if err != nil {
		return nil, err
	}
	var idle []*fetching
	for _, lease := range all {
		if lock, err := r.lockFetching(lease.ID); err == nil {
			idle = append(idle, &fetching{r: r, lease: lease, lock: lock})
		} else if !errors.Is(err, host.ErrLocked) {
			r.Log.Debug("it is not known whether a pull is under way", "lease", lease.ID, "why", err)
		}
	}
	return idle, nil
}

// DropFetched lets go of what interrupted pulls have fetched, but for those that are under way, whoever began them,
// and returns of how many. The space is free when it returns.
func (r *Runtime) DropFetched(ctx context.Context) (int, error) {
	ctx = r.client.Context(ctx)
	idle, err := r.idleFetching(ctx, "")
	if err != nil {
		return 0, daemon.Mapped("looking for what interrupted pulls have fetched", err)
	}
	var errs []error
	for n, i := range idle {
		var opts []leases.DeleteOpt
		if n == len(idle)-1 {
			opts = append(opts, leases.SynchronousDelete)
		}
		if err := r.client.LeasesService().Delete(ctx, i.lease, opts...); err != nil && !daemon.IsNotFound(err) {
			errs = append(errs, daemon.Mapped("dropping what an interrupted pull has fetched", err))
		}
		i.unlock()
	}
	return len(idle) - len(errs), errors.Join(errs...)
}
