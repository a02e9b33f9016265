package agent

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
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
}

func newBoard(files *status.Files, want manifest.Desired, progress func(*v1.Pod)) *board {
	b := &board{files: files, progress: progress, change: make(chan struct{}, 1), pods: map[pod.Key]*v1.Pod{}, settled: map[pod.Key]bool{}, gone: map[pod.Key]bool{}}
	for key, p := range want.Pods {
		b.pods[key] = p
	}
	return b
}

// Publish takes a status note of.
func (b *board) Publish(p *v1.Pod, settled bool) error {
	key := pod.KeyOf(p)
	b.mu.Lock()
	b.pods[key], b.settled[key] = p, settled
	b.mu.Unlock()
	if b.progress != nil {
		b.progress(p)
	}
	b.ring()
	return b.files.Publish(p, settled)
}

// Leaving passes on that a pod is being ended: how it was counts all the same.
func (b *board) Leaving(key pod.Key, now time.Time) error { return b.files.Leaving(key, now) }

// Gone notes that a pod was removed. That may be heard twice: a late event of a pod that is gone makes the
// loop look for it once more.
func (b *board) Gone(key pod.Key) error {
	err := b.files.Gone(key)
	b.mu.Lock()
	b.gone[key] = true
	b.mu.Unlock()
	b.ring()
	return err
}

func (b *board) ring() {
	select {
	case b.change <- struct{}{}:
	default:
	}
}

// wait returns when every pod is done and nothing is left to do for it, or earlier when ctx ends or the
// time is out.
func (b *board) wait(ctx context.Context, timeout time.Duration) Result {
	var late <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		late = timer.C
	}
	for {
		r, all := b.result()
		if all {
			return r
		}
		select {
		case <-b.change:
			continue
		case <-ctx.Done():
			r.Interrupted = true
		case <-late:
			r.TimedOut = true
		}
		return r
	}
}

func (b *board) result() (r Result, all bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all = true
	for _, p := range b.pods {
		r.Pods = append(r.Pods, p)
	}
	stranded := r.Stranded()
	for key, p := range b.pods {
		all = all && (b.settled[key] && Done(p) || stranded[key])
	}
	slices.SortFunc(r.Pods, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return r, all
}

// waitGone returns when n pods have been removed, or ctx ends.
func (b *board) waitGone(ctx context.Context, n int) {
	for {
		b.mu.Lock()
		enough := len(b.gone) >= n
		b.mu.Unlock()
		if enough {
			return
		}
		select {
		case <-b.change:
		case <-ctx.Done():
			return
		}
	}
}
