package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
)

// Down stops and removes the pods that pick chooses among those that are there, gracefully, and returns
// what it removed. It refuses while serve runs, which would start them again. With grace, none is given
// longer than that to end. The error names what stays.
func Down(ctx context.Context, o Options, grace *time.Duration, pick func([]*v1.Pod) ([]*v1.Pod, error)) ([]pod.Key, error) {
	lock, err := lockServe(o.Dirs, commandDown)
	if err != nil {
		return nil, err
	}
	defer lock.unlock()
	board := newBoard(status.NewFiles(o.Dirs), manifest.Desired{}, nil)
	h, err := open(ctx, o, "", board)
	if err != nil {
		return nil, err
	}
	defer h.close()
	h.sweep(ctx)
	chosen, kept, err := h.choose(ctx, pick)
	if err != nil {
		return nil, err
	}
	if len(chosen) == 0 {
		return nil, kept()
	}
	if err := acquireAll(ctx, h.o.locks, chosen); err != nil {
		return nil, err
	}
	h.loop.Takes = func(seen pod.Observed) bool { return chosen[seen.Key] }
	work, stop := context.WithCancel(ctx)
	defer stop()
	var left []Left
	h.run(work, func(ctx context.Context, out chan<- manifest.Desired) {
		defer stop()
		send(ctx, out, manifest.Desired{Complete: true, Grace: grace})
		left = board.awaitRemoval(ctx, chosen, grace, o.Log)
	})
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("stopping pods: %w", err)
	}
	h.sweep(ctx)
	gone, err := removed(chosen, left)
	return gone, errors.Join(err, kept())
}

// removalPatience is how long down goes on while nothing but failures is heard of.
const removalPatience = 30 * time.Second

// awaitRemoval returns when these pods have been removed or ctx ends, or else those that are left when no pod has gone
// for removalPatience beyond the grace periods and all that is tried fails. It logs what it waits for.
func (b *board) awaitRemoval(ctx context.Context, keys map[pod.Key]bool, most *time.Duration, log *slog.Logger) []Left {
	since, logged, count := time.Now(), time.Now(), len(keys)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		left := b.left(keys)
		if len(left) < count {
			since, logged, count = time.Now(), time.Now(), len(left)
		}
		if len(left) == 0 {
			return nil
		}
		failing, grace := b.failing(left, removalPatience)
		if most != nil {
			grace = min(grace, *most)
		}
		if time.Since(since) > grace+removalPatience && failing {
			return left
		}
		if time.Since(logged) > grace+removalPatience {
			logged = time.Now()
			log.Warn("pods are still being removed", "pods", len(left), "first", left[0].Key, "why", left[0].Why)
		}
		select {
		case <-b.change:
		case <-tick.C:
		case <-ctx.Done():
			return left
		}
	}
}

// removed are those of the chosen pods that are not left; for those that are the error says why.
func removed(chosen map[pod.Key]bool, left []Left) ([]pod.Key, error) {
	var errs []error
	for _, l := range left {
		delete(chosen, l.Key)
		errs = append(errs, fmt.Errorf("pod %s is not removed: %w", l.Key, l.Why))
	}
	return slices.SortedFunc(maps.Keys(chosen), pod.Key.Compare), errors.Join(errs...)
}

// choose lets pick choose among the pods that are there. kept then names those of them to which nothing may be done and,
// if all were to go, the checkpoints that stay because they cannot be read.
func (h *house) choose(
	ctx context.Context, pick func([]*v1.Pod) ([]*v1.Pod, error),
) (chosen map[pod.Key]bool, kept func() error, err error) {
	all, err := h.there(ctx)
	if err != nil {
		return nil, nil, err
	}
	if h.loop.Strays, err = status.Keys(h.o.Dirs); err != nil {
		return nil, nil, err
	}
	var pods []*v1.Pod
	for _, o := range all {
		pods = append(pods, h.manifestOf(o))
	}
	for _, key := range h.loop.Strays {
		if !slices.ContainsFunc(all, func(o pod.Observed) bool { return o.Key == key }) {
			pods = append(pods, h.manifestOf(pod.Observed{Key: key}))
		}
	}
	picked, err := pick(pods)
	if err != nil {
		return nil, nil, err
	}
	chosen = map[pod.Key]bool{}
	for _, p := range picked {
		chosen[pod.KeyOf(p)] = true
	}
	stay := h.withheld(all, chosen)
	return chosen, func() error {
		if unread := h.runtime.Store().Errors(); len(picked) == len(pods) && unread != nil {
			stay = append(stay, fmt.Errorf("what checkpoints that cannot be read belong to stays: %w", unread))
		}
		return errors.Join(stay...)
	}, nil
}

// withheld takes from the chosen pods those to which nothing may be done, and says why.
func (h *house) withheld(all []pod.Observed, chosen map[pod.Key]bool) (why []error) {
	for _, o := range all {
		for _, uid := range o.Data {
			if err := h.runtime.Store().Withheld(uid); err != nil && chosen[o.Key] {
				delete(chosen, o.Key)
				why = append(why, fmt.Errorf("pod %s is not removed: %w", o.Key, err))
			}
		}
	}
	return why
}

// manifestOf returns what o runs; where that is not kept, a pod of that name.
func (h *house) manifestOf(o pod.Observed) *v1.Pod {
	for _, uid := range o.Data {
		if p, err := h.runtime.LoadPod(uid); err == nil {
			return p
		}
	}
	p := &v1.Pod{}
	p.Namespace, p.Name = o.Key.Namespace, o.Key.Name
	return p
}
