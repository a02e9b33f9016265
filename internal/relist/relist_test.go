package relist

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

var key = pod.Key{Namespace: "default", Name: "web"}

func seen(things ...any) pod.Observed {
	o := pod.Observed{Key: key}
	for _, t := range things {
		switch t := t.(type) {
		case pod.Container:
			o.Containers = append(o.Containers, t)
		case pod.Sandbox:
			o.Sandboxes = append(o.Sandboxes, t)
		}
	}
	return o
}

func c(id string, s pod.State) pod.Container { return pod.Container{ID: id, State: s} }

func TestDiff(t *testing.T) {
	tests := []struct {
		name     string
		old, now pod.Observed
		want     string
	}{
		{"nothing", seen(), seen(), ""},
		{"first sight", seen(), seen(c("1", pod.Running)), "appeared, started 1"},
		{"first sight of one that has ended", seen(), seen(c("1", pod.Exited)), "appeared, died 1"},
		{"made, not started", seen(c("0", pod.Running)), seen(c("0", pod.Running), c("1", pod.Created)), ""},
		{"started", seen(c("1", pod.Created)), seen(c("1", pod.Running)), "started 1"},
		{"died", seen(c("1", pod.Running)), seen(c("1", pod.Exited)), "died 1"},
		{"never ran, although it seemed to", seen(c("1", pod.Running)), seen(c("1", pod.Created)), "died 1"},
		{"vanished while it ran", seen(c("0", pod.Running), c("1", pod.Running)), seen(c("0", pod.Running)), "died 1, removed 1"},
		{"vanished after it had died", seen(c("0", pod.Running), c("1", pod.Exited)), seen(c("0", pod.Running)), "removed 1"},
		{"not to be told", seen(c("1", pod.Running)), seen(c("1", pod.Unknown)), ""},
		{"told again", seen(c("1", pod.Unknown)), seen(c("1", pod.Running)), "started 1"},
		{"unknown, then gone", seen(c("0", pod.Running), c("1", pod.Unknown)), seen(c("0", pod.Running)), "died 1, removed 1"},
		{"a sandbox lost", seen(pod.Sandbox{ID: "s", Ready: true}), seen(pod.Sandbox{ID: "s"}), "sandbox-died s"},
		{"a sandbox gone", seen(pod.Sandbox{ID: "s", Ready: true}, c("0", pod.Exited)), seen(c("0", pod.Exited)), "sandbox-died s"},
		{"all gone", seen(pod.Sandbox{ID: "s"}, c("0", pod.Exited)), seen(), "removed 0, vanished"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, e := range Diff(tt.old, tt.now) {
				got = append(got, strings.TrimSpace(e.Kind.String()+" "+e.ID))
			}
			if strings.Join(got, ", ") != tt.want {
				t.Errorf("got %v, want %s", got, tt.want)
			}
		})
	}
}

// world is a runtime whose history is written by a test.
type world struct {
	mu     sync.Mutex
	now    map[pod.Key]pod.Observed
	fail   error
	lists  int
	rings  chan runtime.Wakeup
	noBell bool
	// slow is how long, at most, each call takes before it reads the state, and after it.
	slow time.Duration
	// stuck holds pods whose inspection, and with it every list, blocks until the channel is
	// closed.
	stuck map[pod.Key]chan struct{}
	// mute holds pods that cannot be inspected.
	mute map[pod.Key]bool
}

var errMute = errors.New("does not answer")

// pause lets a part of a call's duration pass.
func (w *world) pause() {
	if w.slow > 0 {
		time.Sleep(rand.N(w.slow))
	}
}

func (w *world) List(context.Context) ([]pod.Observed, error) {
	w.pause()
	defer w.pause()
	w.mu.Lock()
	hung := maps.Clone(w.stuck)
	w.mu.Unlock()
	for _, stuck := range hung {
		<-stuck
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lists++
	if w.fail != nil {
		return nil, w.fail
	}
	var all []pod.Observed
	unknown := &runtime.UnknownError{Err: errMute}
	for key, o := range w.now {
		if w.mute[key] {
			unknown.Pods = append(unknown.Pods, pod.Observed{Key: key})
		} else {
			all = append(all, clone(o))
		}
	}
	if len(unknown.Pods) > 0 {
		return all, unknown
	}
	return all, nil
}

func (w *world) Inspect(_ context.Context, k pod.Key) (pod.Observed, error) {
	w.pause()
	defer w.pause()
	if stuck := w.stuck[k]; stuck != nil {
		<-stuck
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail != nil {
		return pod.Observed{}, w.fail
	}
	if w.mute[k] {
		return pod.Observed{}, errMute
	}
	o := clone(w.now[k])
	o.Key = k
	return o, nil
}

func (w *world) Wakeups(context.Context) (<-chan runtime.Wakeup, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.noBell {
		return nil, errors.New("no stream")
	}
	w.rings = make(chan runtime.Wakeup, 1000)
	return w.rings, nil
}

func clone(o pod.Observed) pod.Observed {
	o.Containers = slices.Clone(o.Containers)
	o.Sandboxes = slices.Clone(o.Sandboxes)
	return o
}

// TestModel drives random histories through the relister, with lists that fail, pods that cannot be
// inspected, slow calls and streams that break, and compares the sum of its events with the actual
// state.
func TestModel(t *testing.T) {
	for seed := range uint64(50) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { model(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func model(t *testing.T, dice *rand.Rand) {
	w := &world{now: map[pod.Key]pod.Observed{}, mute: map[pod.Key]bool{}, slow: time.Duration(dice.IntN(3)) * time.Second}
	r := New(Options{Lister: w, Notifier: w, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	ctx, cancel := context.WithCancel(t.Context())
	events := make(chan Event)
	running, there := map[string]bool{}, map[string]bool{} // by what the events say
	var actors sync.WaitGroup
	actors.Go(func() { _ = r.Run(ctx, events) })
	actors.Go(func() {
		for {
			select {
			case e := <-events:
				switch e.Kind {
				case Started:
					running[e.ID], there[e.ID] = true, true
				case Died:
					delete(running, e.ID)
					there[e.ID] = true
				case Removed:
					delete(there, e.ID)
				}
			case <-ctx.Done():
				return
			}
		}
	})
	next := 0
	for range 200 {
		w.mu.Lock()
		k := pod.Key{Namespace: "default", Name: fmt.Sprint(dice.IntN(4))}
		o := w.now[k]
		o.Key = k
		o.Containers = slices.Clone(o.Containers)
		switch dice.IntN(10) {
		case 0, 1, 2:
			next++
			o.Containers = append(o.Containers, pod.Container{ID: fmt.Sprint(next), State: pod.Running})
		case 3, 4:
			if n := len(o.Containers); n > 0 {
				o.Containers[dice.IntN(n)].State = pod.Exited
			}
		case 5:
			if n := len(o.Containers); n > 0 {
				i := dice.IntN(n)
				o.Containers = slices.Delete(o.Containers, i, i+1)
			}
		case 6:
			w.fail = errors.New("down")
		case 7:
			w.fail = nil
			w.noBell = dice.IntN(2) == 0
			if w.rings != nil {
				close(w.rings)
				w.rings = nil
			}
		case 8:
			w.mute[k] = true
		case 9:
			clear(w.mute)
		}
		w.now[k] = o
		if o.Empty() {
			delete(w.now, k)
		}
		if w.rings != nil && dice.IntN(4) > 0 { // some rings get lost
			w.rings <- runtime.Wakeup{Key: k}
		}
		w.mu.Unlock()
		time.Sleep(time.Duration(dice.IntN(3000)) * time.Millisecond)
		if dice.IntN(3) == 0 {
			_, _ = r.Inspect(ctx, k)
		}
	}
	w.mu.Lock()
	w.fail = nil
	clear(w.mute)
	w.mu.Unlock()
	time.Sleep(time.Minute)
	synctest.Wait()
	want, exist := map[string]bool{}, map[string]bool{}
	for k, o := range w.now {
		for _, c := range o.Containers {
			exist[c.ID] = true
			if c.State == pod.Running {
				want[c.ID] = true
			}
		}
		if got := r.Seen(k); len(Diff(got, o)) > 0 {
			t.Errorf("%s: recorded %+v, is %+v", k, got, o)
		}
	}
	cancel()
	actors.Wait()
	for id := range want {
		if !running[id] {
			t.Errorf("%s runs, but its start was missed", id)
		}
	}
	if !maps.Equal(there, exist) {
		t.Errorf("by the events there are %v, by the truth %v", there, exist)
	}
	for id := range running {
		if !want[id] {
			t.Errorf("%s does not run, but its death was missed", id)
		}
	}
}

func TestPeriodFollowsTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{now: map[pod.Key]pod.Observed{}}
		r := New(Options{Lister: w, Notifier: w, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		var actor sync.WaitGroup
		actor.Go(func() { _ = r.Run(ctx, make(chan Event)) })
		lists := func(d time.Duration) int {
			w.mu.Lock()
			before := w.lists
			w.mu.Unlock()
			time.Sleep(d)
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.lists - before
		}
		lists(time.Second)
		if n := lists(time.Minute); n != 6 {
			t.Errorf("%d lists in a minute with a stream, want 6", n)
		}
		w.mu.Lock()
		w.noBell = true
		close(w.rings)
		w.mu.Unlock()
		if n := lists(time.Minute); n < 59 {
			t.Errorf("%d lists in a minute without a stream, want 60", n)
		}
		w.mu.Lock()
		w.noBell = false
		w.mu.Unlock()
		lists(15 * time.Second)
		if n := lists(time.Minute); n != 6 {
			t.Errorf("%d lists in a minute with the stream back, want 6", n)
		}
		if err := r.Healthy(); err != nil {
			t.Error(err)
		}
		w.mu.Lock()
		w.fail = errors.New("down")
		w.mu.Unlock()
		lists(4 * time.Minute)
		if r.Healthy() == nil {
			t.Error("healthy without a good list for 4 minutes")
		}
		cancel()
		actor.Wait()
	})
}
