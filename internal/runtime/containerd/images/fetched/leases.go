// Package fetched protects what is fetched or loaded from containerd's garbage collection until an
// image refers to it, and keeps what an interrupted pull has fetched for the next pull of the
// image.
//
// It does not fetch anything. On disk it has only leases in containerd and, while a pull is in
// progress, a locked directory for its lease. Begin reading at Leases.
package fetched

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/v2/core/leases"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/own"
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

// Leases are the leases of pulls.
type Leases struct {
	client *daemon.Client
	dirs   layout.Dirs
	log    *slog.Logger
}

// New returns the leases in the client's namespace whose locks are below the directories dirs.
func New(client *daemon.Client, dirs layout.Dirs, log *slog.Logger) *Leases {
	return &Leases{client: client, dirs: dirs, log: log}
}

// Lease protects the content that a pull fetches, and what earlier interrupted pulls fetched, from
// garbage collection.
type Lease struct {
	// Resumed means that earlier pulls had fetched something.
	Resumed bool

	leases *Leases
	lease  leases.Lease
	lock   *sys.Lock
}

// Begin creates a lease that protects what a pull of the image fetches. The lease exists until the
// pull has completed; if the pull is interrupted, until a later pull of the image has completed,
// for keepFetched, or until DropFetched.
func (l *Leases) Begin(ctx context.Context, name string) (context.Context, *Lease, error) {
	f := &Lease{leases: l}
	lease, err := l.client.LeasesService().Create(ctx, leases.WithRandomID(), leases.WithExpiration(keepFetched),
		func(made *leases.Lease) error {
			var err error
			// Lock before the lease exists, so that no lease of a pull in progress is without its lock.
			f.lock, err = l.lock(made.ID)
			made.Labels[labelFetching], made.Labels[labelFetchingLocks] = name, l.dirs.ImageFiles().Fetching()
			return err
		})
	if err != nil {
		f.unlock()
		return nil, nil, daemon.Mapped("pulling image "+name, err)
	}
	f.lease = lease
	if err := f.takeOver(ctx, name); err != nil {
		l.log.Debug("content of interrupted pulls cannot be reused; it may be fetched again",
			"image", name, "err", err)
	}
	return leases.WithLease(ctx, lease.ID), f, nil
}

// lock locks the directory that stands for the pull with the given lease.
func (l *Leases) lock(id string) (*sys.Lock, error) {
	// A load may be the first thing that podrun does here: the run directory gets the mode that serve
	// gives it.
	if err := own.Mkdir(l.dirs.Run, layout.ModePassable); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(l.dirs.ImageFiles().Fetching(), 0o700); err != nil {
		return nil, err
	}
	return sys.TryLockDir(filepath.Join(l.dirs.ImageFiles().Fetching(), id), 0o700)
}

// unlock releases the lock: the pull is not in progress any more.
func (f *Lease) unlock() {
	if f.lock != nil {
		_ = os.Remove(f.lock.Path()) // while it is locked, so that no other process's lock is removed
		f.lock.Unlock()
	}
}

// takeOver adds what interrupted pulls of the image have fetched to this pull's lease.
func (f *Lease) takeOver(ctx context.Context, name string) error {
	kept := f.leases.client.LeasesService()
	idle, err := f.leases.idle(ctx, fmt.Sprintf(",labels.%q==%q", labelFetching, name))
	if err != nil {
		return err
	}
	for _, i := range idle {
		held, err := kept.ListResources(ctx, i.lease)
		for _, one := range held {
			err = errors.Join(err, kept.AddResource(ctx, f.lease, one))
			f.Resumed = true
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

// End releases the lock. If over is set, because the pull has completed or nothing was fetched, it
// also deletes the lease.
func (f *Lease) End(ctx context.Context, over bool) {
	if over {
		clean, cancel := daemon.CleanupContext(ctx)
		defer cancel()
		_ = f.leases.client.LeasesService().Delete(clean, f.lease) // it expires by itself
	}
	f.unlock()
}

// idle returns the leases of pulls that are not in progress, each locked until its unlock
// is called. A pull whose process was killed is not in progress.
func (l *Leases) idle(ctx context.Context, filter string) ([]*Lease, error) {
	all, err := l.client.LeasesService().List(ctx,
		fmt.Sprintf("labels.%q==%q", labelFetchingLocks, l.dirs.ImageFiles().Fetching())+filter)
	if err != nil {
		return nil, err
	}
	var idle []*Lease
	for _, lease := range all {
		if lock, err := l.lock(lease.ID); err == nil {
			idle = append(idle, &Lease{leases: l, lease: lease, lock: lock})
		} else if !errors.Is(err, sys.ErrLocked) {
			l.log.Debug("lock of a pull cannot be checked; its content is kept", "lease", lease.ID, "err", err)
		}
	}
	return idle, nil
}

// DropFetched releases what interrupted pulls have fetched, except for pulls that are in progress
// in any process, and returns the number of pulls. The disk space is free when it returns.
func (l *Leases) DropFetched(ctx context.Context) (int, error) {
	ctx = l.client.Context(ctx)
	idle, err := l.idle(ctx, "")
	if err != nil {
		return 0, daemon.Mapped("listing the content of interrupted pulls", err)
	}
	var errs []error
	for n, i := range idle {
		var opts []leases.DeleteOpt
		if n == len(idle)-1 {
			opts = append(opts, leases.SynchronousDelete)
		}
		if err := l.client.LeasesService().Delete(ctx, i.lease, opts...); err != nil && !daemon.IsNotFound(err) {
			errs = append(errs, daemon.Mapped("removing the content of an interrupted pull", err))
		}
		i.unlock()
	}
	return len(idle) - len(errs), errors.Join(errs...)
}
