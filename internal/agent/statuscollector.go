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

// board collects the statuses of the pods of one run and passes them on to the status files.
type board struct {
	files    *status.Files
	progress func(*v1.Pod)
	change   chan struct{} // receives a value at every change
	mu       sync.Mutex
	pods     map[pod.Key]*v1.Pod
	settled  map[pod.Key]bool
	gone     map[pod.Key]bool
	trouble  map[pod.Key]trouble // the last one
}

// trouble is a failed action of a pod.
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

// Leaving passes on that a pod is being terminated. Its last status still counts.
func (b *board) Leaving(key pod.Key, now time.Time, ready map[string]bool) error {
	return b.files.Leaving(key, now, ready)
}

// NotOwned does nothing: a run acquires the locks that it needs before it starts anything. If a
// lock is lost later, troubled is called.
func (b *board) NotOwned(pod.Key, *v1.Pod, *plan.Waiting) error { return nil }

// Gone records that a pod was removed. It may be called twice: a late event of a removed pod makes
// the loop inspect the pod again.
func (b *board) Gone(key pod.Key) error {
	err := b.files.Gone(key)
	b.mu.Lock()
	b.gone[key] = true
	b.mu.Unlock()
	b.notify()
	return err
}

// troubled records why an action of a pod has failed.
func (b *board) troubled(key pod.Key, why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trouble[key] = trouble{why, time.Now()}
}

// troubled returns the function of a publisher that records failures; nil for any other publisher.
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

// wait returns when every pod is done and no actions are left, or earlier when ctx ends or after
// timeout (0: none). Actions that are left when all pods are done delay the result by at most
// cleanup.
func (b *board) wait(ctx context.Context, timeout, cleanup time.Duration) Result {
	var late, over <-chan time.Time
	if timeout > 0 {
		late = time.After(timeout)
	}
	var known time.Time // since when all pods are done
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

// result returns the pods and their statuses. settled reports that all are done and no actions are
// left.
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

// failing reports that an action of each of these pods has failed within the last while, and
// returns the longest grace period of those that run.
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

// left returns those of the pods that have not been removed, sorted, each with its last error, if
// any.
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

// unsettled returns those of the pods that actions are left for.
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
