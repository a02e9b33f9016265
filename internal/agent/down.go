package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
)

// DownOptions are the options of Down.
type DownOptions struct {
	// Pick chooses among the pods on the machine.
	Pick func([]*v1.Pod) ([]*v1.Pod, error)
	// Unkept removes those of the chosen pods that no other process owns, and the error names the
	// others. Otherwise none is removed if another process owns one of them.
	Unkept bool
	// Grace is the longest grace period of a pod. nil: the manifest's.
	Grace *time.Duration
	// Waiting is called with what a pod is waiting for if its removal takes long, and again when
	// that changes. May be nil.
	Waiting func(key pod.Key, what string)
}

// Down stops and removes the chosen pods with their grace periods and returns the pods that it
// removed. While serve runs, Down works at the same time, as Once does, and refuses the pods that
// serve runs, because serve would start them again. The error names the pods that were not removed.
// Down returns soon after ctx ends even if something hangs; what it has begun may continue until
// the process exits.
func Down(ctx context.Context, o Options, d DownOptions) ([]pod.Key, error) {
	return promptly(ctx, func() ([]pod.Key, error) { return down(ctx, o, d) })
}

func down(ctx context.Context, o Options, d DownOptions) ([]pod.Key, error) {
	lock, serving := lockServe(o.Dirs, commandDown)
	// While serve runs do not sweep: what looks like leftovers may be serve's work in progress.
	owner, sweep := ownerOnce, func(*house) {}
	switch {
	case serving == nil:
		defer lock.unlock()
		owner, sweep = "", func(h *house) { h.sweep(ctx) }
	case !errors.Is(serving, ErrServing):
		return nil, serving
	}
	board := newBoard(status.NewFiles(o.Dirs), manifest.Desired{}, nil)
	if o.locks == nil {
		o.locks = newPodLocks(o.Dirs, commandDown)
	}
	h, err := open(ctx, o, owner, board)
	if err != nil {
		return nil, err
	}
	defer h.close()
	sweep(h)
	chosen, kept, err := h.choose(ctx, d.Pick)
	if err != nil {
		return nil, err
	}
	if len(chosen) == 0 {
		return nil, kept()
	}
	refused, err := h.acquire(ctx, chosen, serving != nil)
	if err == nil && !d.Unkept {
		err = errors.Join(refused...)
	}
	if err != nil {
		for key := range chosen {
			h.o.locks.Release(key)
		}
		return nil, besideServe(serving, err)
	}
	others := besideServe(serving, errors.Join(refused...))
	if len(chosen) == 0 {
		return nil, errors.Join(others, kept())
	}
	h.loop.Adopts = func(seen pod.Observed) bool { return chosen[seen.Key] }
	work, stop := context.WithCancel(ctx)
	defer stop()
	var left []Left
	h.run(work, func(ctx context.Context, out chan<- manifest.Desired) {
		defer stop()
		send(ctx, out, manifest.Desired{Complete: true, Grace: d.Grace})
		left = h.awaitRemoval(ctx, board, chosen, d)
	})
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("stopping pods: %w", err)
	}
	sweep(h)
	gone, err := removed(chosen, left)
	return gone, errors.Join(err, others, kept())
}

// awaitRemoval calls the board's awaitRemoval and reports pods that take long to d.Waiting.
func (h *house) awaitRemoval(ctx context.Context, b *board, keys map[pod.Key]bool, d DownOptions) []Left {
	if d.Waiting != nil {
		waiting, enough := context.WithCancel(ctx)
		var telling sync.WaitGroup
		defer telling.Wait()
		defer enough()
		telling.Go(func() { h.reportAwaited(waiting, b, keys, d.Waiting) })
	}
	return b.awaitRemoval(ctx, keys, d.Grace, h.o.Log)
}

// removalPatience is how long down continues while all attempts fail.
const removalPatience = 30 * time.Second

// awaitRemoval returns nil when these pods have been removed. It returns the pods that are left
// when ctx ends, or when no pod was removed for the grace period plus removalPatience and something
// has failed for each of them recently. It logs what it waits for.
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
			log.Warn("pods are still being removed", "pods", len(left), "first", left[0].Key, "err", left[0].Why)
		}
		select {
		case <-b.change:
		case <-tick.C:
		case <-ctx.Done():
			return left
		}
	}
}

// removed returns the chosen pods that are not left. The error says why each of the others is.
func removed(chosen map[pod.Key]bool, left []Left) ([]pod.Key, error) {
	var errs []error
	for _, l := range left {
		delete(chosen, l.Key)
		errs = append(errs, fmt.Errorf("pod %s is not removed: %w", l.Key, l.Why))
	}
	return slices.SortedFunc(maps.Keys(chosen), pod.Key.Compare), errors.Join(errs...)
}

// awaitedPoll is when down first reports what it waits for, and how often it checks for changes.
const awaitedPoll = 2 * time.Second

// reportAwaited calls tell with what each remaining pod waits for, and again when that changes,
// until ctx ends.
func (h *house) reportAwaited(ctx context.Context, b *board, keys map[pod.Key]bool, tell func(pod.Key, string)) {
	told := map[pod.Key]string{}
	tick := time.NewTicker(awaitedPoll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, l := range b.left(keys) {
			if what := h.awaited(l); what != told[l.Key] {
				told[l.Key] = what
				tell(l.Key, what)
			}
		}
	}
}

// awaited returns what a pod that is being removed waits for, according to the last list, and why
// the last attempt failed, if it did.
func (h *house) awaited(l Left) string {
	what := "the rest of it to be removed"
	switch {
	case h.runs(map[pod.Key]bool{l.Key: true}):
		what = "its containers to end"
	case len(h.relister.Seen(l.Key).Sandboxes) > 0:
		what = "its network and its sandbox to be removed"
	}
	if l.Why != nil {
		what += "; it failed: " + l.Why.Error()
	}
	return what
}

// besideServe adds to the error of a pod that serve owns that serve is running.
func besideServe(serving, err error) error {
	if owned := (*OwnedError)(nil); serving != nil && errors.As(err, &owned) && owned.Serve {
		return fmt.Errorf("%w: %w", serving, err)
	}
	return err
}

// acquire makes this process the owner of those of the chosen pods that no other process owns. It
// deletes the others from chosen and returns an *OwnedError for each in refused. serves reports
// that a serve runs: it may have started just now and not own its pods yet.
func (h *house) acquire(ctx context.Context, chosen map[pod.Key]bool, serves bool) (refused []error, err error) {
	refuse := func(err error, key pod.Key) {
		delete(chosen, key)
		refused = append(refused, err)
	}
	for _, key := range slices.SortedFunc(maps.Keys(chosen), pod.Key.Compare) {
		err := acquireAll(ctx, h.o.locks, map[pod.Key]bool{key: true})
		switch {
		case errors.As(err, new(*OwnedError)):
			refuse(err, key)
		case err != nil:
			return refused, err
		}
	}
	if !serves {
		return refused, nil
	}
	all, err := h.there(ctx)
	for _, o := range all {
		if chosen[o.Key] && o.Owner == ownerServe {
			h.o.locks.Release(o.Key)
			refuse(&OwnedError{Key: o.Key, Holder: "podrun serve", Serve: true}, o.Key)
		}
	}
	return refused, err
}

// choose calls pick with the pods on the machine. kept then returns an error for each picked pod
// that must not be changed and, if pick chose all pods, for each checkpoint that stays because it
// cannot be read.
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
		if len(picked) < len(pods) {
			return errors.Join(stay...)
		}
		named := errors.Join(stay...)
		for _, err := range h.runtime.Store().Errors() {
			if !errors.Is(named, err) {
				stay = append(stay, fmt.Errorf("the data of an unreadable checkpoint is not removed: %w", err))
			}
		}
		return errors.Join(stay...)
	}, nil
}

// withheld deletes the pods that must not be changed from chosen and returns why.
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

// manifestOf returns the manifest that o runs, or a pod with only its name if no manifest was
// saved.
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
