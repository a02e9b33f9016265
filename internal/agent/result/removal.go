package result

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"podrun.io/podrun/internal/pod"
)

// removalPatience is how long AwaitRemoval continues while all attempts fail.
const removalPatience = 30 * time.Second

// Removal says how AwaitRemoval waits.
type Removal struct {
	// Grace is the longest grace period of a pod. nil: the manifest's.
	Grace *time.Duration
	// Seen returns what a pod had at the last list.
	Seen func(key pod.Key) pod.Observed
	// Waiting is called with what a pod is waiting for if its removal takes long, and again when that
	// changes. May be nil.
	Waiting func(key pod.Key, what string)
	Log     *slog.Logger
}

// AwaitRemoval returns nil when these pods have been removed. It returns the pods that are left
// when ctx ends, or when no pod was removed for the grace period plus removalPatience and something
// has failed for each of them recently. It logs what it waits for.
func (c *Collector) AwaitRemoval(ctx context.Context, keys map[pod.Key]bool, r Removal) []Left {
	if r.Waiting != nil {
		waiting, enough := context.WithCancel(ctx)
		var reporting sync.WaitGroup
		defer reporting.Wait()
		defer enough()
		reporting.Go(func() { c.reportAwaited(waiting, keys, r) })
	}
	since, logged, count := time.Now(), time.Now(), len(keys)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		left := c.Left(keys)
		if len(left) < count {
			since, logged, count = time.Now(), time.Now(), len(left)
		}
		if len(left) == 0 {
			return nil
		}
		failing, grace := c.failing(left, removalPatience)
		if r.Grace != nil {
			grace = min(grace, *r.Grace)
		}
		if time.Since(since) > grace+removalPatience && failing {
			return left
		}
		if time.Since(logged) > grace+removalPatience {
			logged = time.Now()
			attributes := []any{"pods", len(left), "first", left[0].Key}
			if why := left[0].Why; why != nil {
				attributes = append(attributes, "err", why)
			}
			r.Log.Warn("pods are still being removed", attributes...)
		}
		select {
		case <-c.change:
		case <-tick.C:
		case <-ctx.Done():
			return left
		}
	}
}

// Removed returns the chosen pods that are not left. The error says why each of the others is.
func Removed(chosen map[pod.Key]bool, left []Left) ([]pod.Key, error) {
	var errs []error
	for _, l := range left {
		delete(chosen, l.Key)
		errs = append(errs, fmt.Errorf("pod %s is not removed: %w", l.Key, l.Why))
	}
	return slices.SortedFunc(maps.Keys(chosen), pod.Key.Compare), errors.Join(errs...)
}

// awaitedPoll is when reportAwaited first reports what pods wait for, and how often it checks for
// changes.
const awaitedPoll = 2 * time.Second

// reportAwaited calls r.Waiting with what each of the pods that are left waits for, and again when
// that changes, until ctx ends.
func (c *Collector) reportAwaited(ctx context.Context, keys map[pod.Key]bool, r Removal) {
	reported := map[pod.Key]string{}
	tick := time.NewTicker(awaitedPoll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, l := range c.Left(keys) {
			if what := awaited(l, r.Seen(l.Key)); what != reported[l.Key] {
				reported[l.Key] = what
				r.Waiting(l.Key, what)
			}
		}
	}
}

// awaited returns what a pod that is being removed waits for, and why the last attempt failed, if it
// did.
func awaited(l Left, seen pod.Observed) string {
	what := "the rest of it to be removed"
	switch {
	case Runs(seen):
		what = "its containers to end"
	case len(seen.Sandboxes) > 0:
		what = "its network and its sandbox to be removed"
	}
	if l.Why != nil {
		what += "; it failed: " + l.Why.Error()
	}
	return what
}

// Runs reports that a container of the pod runs.
func Runs(seen pod.Observed) bool {
	return slices.ContainsFunc(seen.Containers, func(c pod.Container) bool { return c.State == pod.Running })
}
