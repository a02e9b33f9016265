package agent

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/status"
)

// board collects how the pods of one run are, on their way into the status files.
type board struct {
	files    *status.Files
	progress func(*v1.Pod)
	change   chan struct{} // rung at every change
	mu       sync.Mutex
	pods     map[pod.Key]*v1.Pod
	settled  map[pod.Key]bool
	gone     map[pod.Key]bool
	trouble  map[pod.Key]trouble // the last one
}

// trouble is a failure of what was to be done for a pod.
type trouble struct {
	why error
	at  time.Time
}

func newBoard(files *status.Files, want manifest.Desired, progress func(*v1.Pod)) *board {
	b := &board{
		files: files, progress: progress, change: make(chan struct{}, 1), pods: map[pod.Key]*v1.Pod{},
		settled: map[pod.Key]bool{}, gone: map[pod.Key]bool{}, trouble: map[pod.Key]trouble{},
	}
	for key, p := range want.Pods {
		b.pods[key] = p
	}
	return b
}

// Publish records a pod's status.
func (b *board) Publish(p *v1.Pod, settled bool) error {
	key := pod.KeyOf(p)
	b.mu.Lock()
	b.pods[key], b.settled[key] = p, settled
	b.mu.Unlock()
	if b.progress != nil {
		b.progress(p)
	}
	b.notify()
	return b.files.Publish(p, settled)
}

// Leaving passes on that a pod is being ended: how it was counts all the same.
func (b *board) Leaving(key pod.Key, now time.Time, ready map[string]bool) error {
	return b.files.Leaving(key, now, ready)
}

// NotOwned does nothing: who needs a pod's lock has it before anything is begun. Why it is lost later, troubled hears.
func (b *board) NotOwned(pod.Key, *v1.Pod, *plan.Waiting) error { return nil }

// Gone notes that a pod was removed. That may be heard twice: a late event of a pod that is gone makes the
// loop look for it once more.
func (b *board) Gone(key pod.Key) error {
	err := b.files.Gone(key)
	b.mu.Lock()
	b.gone[key] = true
	b.mu.Unlock()
	b.notify()
	return err
}

// troubled records why what was to be done for a pod has failed.
func (b *board) troubled(key pod.Key, why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trouble[key] = trouble{why, time.Now()}
}

// troubled is how a publisher that wants to hear of failures does; nil for any other.
func troubled(p reconcile.Publisher) func(pod.Key, error) {
	if b, is := p.(*board); is {
		return b.troubled
	}
	return nil
}

func (b *board) notify() {
	select {
	case b.change <- struct{}{}:
	default:
	}
}

// wait returns when every pod is done and nothing is left to do for it, or earlier when ctx ends or timeout is over,
// unless it is 0. What is left to do when all are done delays the result by cleanup at most.
func (b *board) wait(ctx context.Context, timeout, cleanup time.Duration) Result {
	var late, over <-chan time.Time
	if timeout > 0 {
		late = time.After(timeout)
	}
	var known time.Time // since when all are done
	for {
		r, settled := b.result()
		done := r.done()
		switch {
		case !done:
			known, over = time.Time{}, nil
		case over == nil:
			known, over = time.Now(), time.After(cleanup)
		}
		if settled {
			return r
		}
		select {
		case <-b.change:
			continue
		case <-over:
			r.unsettled = true
		case <-ctx.Done():
			r.Interrupted, r.unsettled = true, done
		case <-late:
			r.TimedOut = !done
		}
		if done {
			r.settling = time.Since(known)
		}
		return r
	}
}

// result returns how the pods are; settled: all are done, and nothing is left to do for them.
func (b *board) result() (r Result, settled bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	settled = true
	for _, p := range b.pods {
		r.Pods = append(r.Pods, p)
	}
	stranded := r.Stranded()
	for key, p := range b.pods {
		settled = settled && (b.settled[key] && Done(p) || stranded[key])
	}
	slices.SortFunc(r.Pods, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return r, settled
}

// waitGone returns when these pods have been removed, or ctx ends.
func (b *board) waitGone(ctx context.Context, keys map[pod.Key]bool) {
	for len(b.left(keys)) > 0 {
		select {
		case <-b.change:
		case <-ctx.Done():
			return
		}
	}
}

// failing reports that something has failed for each of these pods in the last while, and how long those of them that
// run may take to end.
func (b *board) failing(left []Left, while time.Duration) (all bool, grace time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all = true
	for _, l := range left {
		t, failed := b.trouble[l.Key]
		all = all && failed && time.Since(t.at) <= while
		if p := b.pods[l.Key]; p != nil {
			grace = max(grace, graceOf(p))
		}
	}
	return all, grace
}

// left are those of the pods that have not been removed, in order, and why as far as is known.
func (b *board) left(keys map[pod.Key]bool) []Left {
	b.mu.Lock()
	defer b.mu.Unlock()
	var left []Left
	for key := range keys {
		if !b.gone[key] {
			left = append(left, Left{key, b.trouble[key].why})
		}
	}
	slices.SortFunc(left, func(a, b Left) int { return cmp.Compare(a.Key.String(), b.Key.String()) })
	return left
}

// unsettled are the pods, among these, that something is left to do for.
func (b *board) unsettled(keys map[pod.Key]*v1.Pod) []Left {
	b.mu.Lock()
	defer b.mu.Unlock()
	var left []Left
	for key := range keys {
		if !b.settled[key] {
			left = append(left, Left{key, b.trouble[key].why})
		}
	}
	slices.SortFunc(left, func(a, b Left) int { return cmp.Compare(a.Key.String(), b.Key.String()) })
	return left
}
