package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent/deadline"
	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/agent/result"
	"podrun.io/podrun/internal/agent/selection"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
)

// DownOptions are the options of Down.
type DownOptions struct {
	// Pick chooses among the pods on the machine.
	Pick func([]*v1.Pod) ([]*v1.Pod, error)
	// Unkept removes those of the chosen pods that no other process owns, and the error names the others. Otherwise
	// none is removed if another process owns one of them.
	Unkept bool
	// Grace is the longest grace period of a pod. nil: the manifest's.
	Grace *time.Duration
	// Waiting is called with what a pod's removal waits for, if it takes long, and when that changes. May be nil.
	Waiting func(key pod.Key, what string)
}

// Down stops and removes the chosen pods with their grace periods and returns the pods that it removed. It locks the
// run directory (owner.LockRun) unless serve or another down has that lock: it then works without it, as Once always
// does, and refuses serve's pods, because serve would start them again. The error names the pods that were not removed.
// Down returns soon after ctx ends even if something hangs; what it has begun may go on until the process exits.
func Down(ctx context.Context, o Options, d DownOptions) ([]pod.Key, error) {
	return deadline.Promptly(ctx, func() ([]pod.Key, error) { return down(ctx, o, d) })
}

func down(ctx context.Context, o Options, d DownOptions) ([]pod.Key, error) {
	lock, busy := owner.LockRun(o.Dirs, owner.Down)
	serves := errors.Is(busy, owner.ErrServing)
	// While another process has the lock do not sweep: what looks like leftovers may be its work in progress.
	as, sweep := role{locks: o.newLocks(owner.Down)}, func(*agent) {}
	switch {
	case busy == nil:
		defer lock.Unlock()
		sweep = func(a *agent) { a.sweep(ctx) }
	case serves:
		as.owner = owner.Once
	case !errors.Is(busy, owner.ErrEnding):
		return nil, busy
	}
	pods := result.NewCollector(status.NewFiles(o.Dirs), manifest.Desired{}, nil)
	as.publisher, as.troubled = pods, pods.Troubled
	a, err := open(ctx, o, as)
	if err != nil {
		return nil, err
	}
	defer a.close()
	a.conn.Cool()
	sweep(a)
	if a.loop.Strays, err = status.Keys(o.Dirs); err != nil {
		return nil, err
	}
	chosen, err := selection.Choose(ctx, a.runtime, a.loop.Strays, d.Pick)
	if err != nil {
		return nil, err
	}
	if len(chosen.Pods) == 0 {
		return nil, chosen.Err()
	}
	refused, err := chosen.Acquire(ctx, a.locks, serves)
	if err == nil && !d.Unkept {
		err = errors.Join(refused...)
	}
	if err != nil {
		for key := range chosen.Pods {
			a.locks.Release(key)
		}
		return nil, besideServe(busy, err)
	}
	others := besideServe(busy, errors.Join(refused...))
	if len(chosen.Pods) == 0 {
		return nil, errors.Join(others, chosen.Err())
	}
	var begun sync.Map // the pods that are being removed
	a.loop.Stops = true
	a.loop.Terminates = func(seen pod.Observed) bool { _, now := begun.Load(seen.Key); return now }
	work, stop := context.WithCancel(ctx)
	defer stop()
	var left []result.Left
	desired := make(chan manifest.Desired)
	a.run(work, desired, func(ctx context.Context) {
		defer stop()
		for _, some := range chosen.InOrder() {
			for key := range some {
				begun.Store(key, true)
			}
			send(ctx, desired, manifest.Desired{Complete: true, Grace: d.Grace})
			left = append(left, pods.AwaitRemoval(ctx, some, result.Removal{
				Grace: d.Grace, Seen: a.relister.Seen, Waiting: d.Waiting, Log: o.Log,
			})...)
		}
	})
	gone, err := result.Removed(chosen.Pods, left)
	if err := ctx.Err(); err != nil {
		return gone, fmt.Errorf("stopping pods: %w", err)
	}
	sweep(a)
	return gone, errors.Join(err, others, chosen.Err())
}

// besideServe adds to the error of a pod that serve owns that serve is running.
func besideServe(serving, err error) error {
	if owned := (*owner.OwnedError)(nil); serving != nil && errors.As(err, &owned) && owned.Serve {
		return fmt.Errorf("%w: %w", serving, err)
	}
	return err
}
