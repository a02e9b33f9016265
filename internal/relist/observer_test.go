package relist

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// heard is what an Observer was called with.
type heard struct {
	lists, badLists, looks int
	opened, broken         int
	late                   []time.Duration
	kinds                  map[Kind]int
	shortest, longest      time.Duration // between two lists
	last                   time.Time
}

// ledger is an Observer that records its calls.
type ledger struct {
	mu sync.Mutex
	heard
}

func (l *ledger) Relisted(began time.Time, _ time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lists++
	if err != nil {
		l.badLists++
	}
	if !l.last.IsZero() {
		gap := began.Sub(l.last)
		l.longest = max(l.longest, gap)
		if l.shortest == 0 || gap < l.shortest {
			l.shortest = gap
		}
	}
	l.last = began
}

func (l *ledger) Inspected(time.Duration, error) { l.mu.Lock(); defer l.mu.Unlock(); l.looks++ }

func (l *ledger) Stream(up bool, _ error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if up {
		l.opened++
	} else {
		l.broken++
	}
}

func (l *ledger) Notified(late time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = append(l.late, late)
}
func (l *ledger) Happened(kind Kind) { l.mu.Lock(); defer l.mu.Unlock(); l.kinds[kind]++ }

// take returns what was recorded since the last call.
func (l *ledger) take() heard {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.heard
	l.heard = heard{kinds: map[Kind]int{}, last: out.last}
	return out
}

// observed runs test beside a relister of w.
func observed(t *testing.T, w *world, test func(r *Relister, l *ledger)) { observedBy(t, w, w, test) }

// observedBy is observed with lister as the Lister of what is in w.
func observedBy(t *testing.T, lister runtime.Lister, w *world, test func(r *Relister, l *ledger)) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{heard: heard{kinds: map[Kind]int{}}}
		r := New(Options{Lister: lister, Notifier: w, Observer: l, Log: slog.New(slog.DiscardHandler)})
		if err := r.Failing(); err == nil {
			t.Error("all is well before the first list")
		}
		ctx, cancel := context.WithCancel(t.Context())
		events := make(chan Event)
		var actors sync.WaitGroup
		actors.Go(func() { _ = r.Run(ctx, events) })
		actors.Go(func() {
			for {
				select {
				case <-events:
				case <-ctx.Done():
					return
				}
			}
		})
		synctest.Wait()
		test(r, l)
		cancel()
		actors.Wait()
	})
}

func (w *world) set(fail error, o ...pod.Observed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = fail
	for _, o := range o {
		w.now[o.Key] = o
	}
}

func TestObserver(t *testing.T) {
	w := &world{now: map[pod.Key]pod.Observed{key: seen(pod.Sandbox{ID: "s", Ready: true}, c("1", pod.Running), c("0", pod.Exited))}}
	observed(t, w, func(r *Relister, l *ledger) {
		if got := l.take(); got.lists == 0 || got.opened != 1 || got.kinds[Started] != 1 || got.kinds[Died] != 1 || got.kinds[Appeared] != 1 {
			t.Errorf("at the beginning: %+v", got)
		}
		if n := r.Counts(); n.Pods != 1 || n.Containers[pod.Running] != 1 || n.Containers[pod.Exited] != 1 {
			t.Errorf("counts %+v", n)
		}
		if got := r.Running(); len(got) != 1 || got[0].Key != key || len(got[0].Containers) != 1 || got[0].Containers[0].ID != "1" {
			t.Errorf("running %+v", got)
		}
		// A wakeup contains the time of its event.
		w.set(nil, seen(pod.Sandbox{ID: "s"}, c("1", pod.Exited), c("0", pod.Exited)))
		w.rings <- runtime.Wakeup{Key: key, At: time.Now().Add(-3 * time.Millisecond)}
		synctest.Wait()
		if got := l.take(); got.looks != 1 || len(got.late) != 1 || got.late[0] != 3*time.Millisecond || got.kinds[Died] != 1 || got.kinds[SandboxDied] != 1 {
			t.Errorf("after a ring: %+v", got)
		}
		if n := r.Counts(); n.Pods != 0 || n.Containers[pod.Exited] != 2 || n.Containers[pod.Running] != 0 {
			t.Errorf("counts %+v", n)
		}
		if got := r.Running(); len(got) != 0 {
			t.Errorf("running %+v", got)
		}
		// The stream breaks: every failed attempt counts, and lists run every second.
		time.Sleep(10 * time.Second)
		l.take()
		w.mu.Lock()
		w.noBell = true
		close(w.rings)
		w.mu.Unlock()
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		if got := l.take(); got.broken < 5 || got.opened != 0 || got.lists < 10 || got.shortest != time.Second || got.badLists != 0 {
			t.Errorf("without a stream: %+v", got)
		}
		w.mu.Lock()
		w.noBell = false
		w.mu.Unlock()
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if got := l.take(); got.opened != 1 {
			t.Errorf("with the stream again: %+v", got)
		}
		l.take()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := l.take(); got.lists < 6 || got.lists > 7 || got.shortest != 10*time.Second {
			t.Errorf("a minute with a stream: %+v", got)
		}
	})
}

func TestFailing(t *testing.T) {
	w := &world{now: map[pod.Key]pod.Observed{}}
	observed(t, w, func(r *Relister, l *ledger) {
		if err := errors.Join(r.Failing(), r.Healthy()); err != nil {
			t.Errorf("in the beginning: %v", err)
		}
		away := errors.New("away")
		w.set(away)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if err := r.Failing(); !errors.Is(err, away) {
			t.Errorf("a list failed, Failing returned %v", err)
		}
		if err := r.Healthy(); err != nil {
			t.Errorf("after 11 seconds: %v", err)
		}
		if got := l.take(); got.badLists == 0 {
			t.Errorf("no failed list was counted: %+v", got)
		}
		time.Sleep(unhealthyAfter)
		if err := r.Healthy(); !errors.Is(err, away) || !strings.Contains(err.Error(), "3m") {
			t.Errorf("after 3 minutes: %v", err)
		}
		w.set(nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if err := errors.Join(r.Failing(), r.Healthy()); err != nil {
			t.Errorf("in the end: %v", err)
		}
	})
}

// hung never returns from a list, and so returns no error.
type hung struct{ *world }

func (h hung) List(ctx context.Context) ([]pod.Observed, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestFailingWhenTheRuntimeHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{Lister: hung{&world{}}, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx, nil) }()
		r.mu.Lock()
		close(r.listed)
		r.mu.Unlock()
		time.Sleep(evented + lateAfter + time.Second)
		if err := r.Failing(); err == nil || !strings.Contains(err.Error(), "31s ago") {
			t.Errorf("got %v", err)
		}
		cancel()
		<-done
	})
}
