package relist

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// lagging is a Lister whose inspections return the state at their beginning, once they are
// released.
type lagging struct {
	*world
	began   chan struct{}
	through chan struct{}
}

// open creates the channels, which must belong to the test's synctest bubble.
func (l *lagging) open() { l.began, l.through = make(chan struct{}, 10), make(chan struct{}) }

// Inspect implements runtime.Lister.
func (l *lagging) Inspect(ctx context.Context, k pod.Key) (pod.Observed, error) {
	seen, err := l.world.Inspect(ctx, k)
	l.began <- struct{}{}
	<-l.through
	return seen, err
}

// TestAStaleInspectionBringsNoPodBack: the result of an inspection is ignored if a list that began
// later did not contain the pod, whatever caused the inspection and however many lists have
// succeeded meanwhile.
func TestAStaleInspectionBringsNoPodBack(t *testing.T) {
	ring := func(r *Relister, w *world) { w.rings <- runtime.Wakeup{Key: key, At: time.Now()} }
	ask := func(r *Relister, w *world) { _, _ = r.Inspect(context.Background(), key) }
	for _, tt := range []struct {
		name string
		// recorded reports that a list contained the pod before the inspection began.
		recorded bool
		inspect  func(r *Relister, w *world)
		lists    time.Duration
	}{
		{"a worker's", true, ask, DefaultPeriod},
		{"a worker's, many lists later", true, ask, time.Minute},
		{"an event's", true, ring, DefaultPeriod},
		{"the first of the pod", false, ask, DefaultPeriod},
		{"an event's, the first of the pod", false, ring, time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &world{now: map[pod.Key]pod.Observed{}}
			l := &lagging{world: w}
			there := seen(pod.Sandbox{ID: "s", Ready: true}, c("1", pod.Running))
			if tt.recorded {
				w.now[key] = there
			}
			observedBy(t, l, w, func(r *Relister, heard *ledger) {
				l.open()
				w.set(nil, there)
				var inspecting sync.WaitGroup
				inspecting.Go(func() { tt.inspect(r, w) })
				<-l.began
				w.mu.Lock()
				delete(w.now, key)
				w.rings <- runtime.Wakeup{All: true}
				w.mu.Unlock()
				time.Sleep(tt.lists)
				synctest.Wait()
				if got := r.Seen(key); !got.Empty() || got.Key != key {
					t.Fatalf("after the list: %+v", got)
				}
				heard.take()
				close(l.through)
				inspecting.Wait()
				synctest.Wait()
				if got := r.Seen(key); !got.Empty() || got.Key != key {
					t.Errorf("after the inspection: %+v", got)
				}
				if got := heard.take(); len(got.kinds) > 0 {
					t.Errorf("it told %v", got.kinds)
				}
				time.Sleep(2 * evented)
				synctest.Wait()
				r.mu.Lock()
				defer r.mu.Unlock()
				if len(r.pods)+len(r.inspecting) > 0 {
					t.Errorf("it still remembers %v, %v", r.pods, r.inspecting)
				}
			})
		})
	}
}

// TestAnInspectionDuringAListThatCannotTell: a list that cannot inspect a pod does not outdate an
// inspection of it.
func TestAnInspectionDuringAListThatCannotTell(t *testing.T) {
	w := &world{now: map[pod.Key]pod.Observed{}}
	l := &lagging{world: w}
	observedBy(t, l, w, func(r *Relister, _ *ledger) {
		l.open()
		w.set(nil, seen(c("1", pod.Running)))
		var got pod.Observed
		var inspecting sync.WaitGroup
		inspecting.Go(func() { got, _ = r.Inspect(context.Background(), key) })
		<-l.began
		w.mu.Lock()
		w.mute = map[pod.Key]bool{key: true}
		w.rings <- runtime.Wakeup{All: true}
		w.mu.Unlock()
		synctest.Wait()
		close(l.through)
		inspecting.Wait()
		if got.Empty() || r.Seen(key).Empty() {
			t.Errorf("the inspection returned %+v, the record is %+v", got, r.Seen(key))
		}
	})
}

// TestANewPodAfterAStaleInspection: a new pod of the same name that appears while an old inspection
// hangs is found.
func TestANewPodAfterAStaleInspection(t *testing.T) {
	w := &world{now: map[pod.Key]pod.Observed{key: seen(c("1", pod.Running))}}
	l := &lagging{world: w}
	observedBy(t, l, w, func(r *Relister, _ *ledger) {
		l.open()
		var inspecting sync.WaitGroup
		inspecting.Go(func() { _, _ = r.Inspect(context.Background(), key) })
		<-l.began
		w.mu.Lock()
		delete(w.now, key)
		w.rings <- runtime.Wakeup{All: true}
		w.mu.Unlock()
		synctest.Wait()
		w.set(nil, seen(c("2", pod.Running)))
		w.rings <- runtime.Wakeup{All: true}
		synctest.Wait()
		close(l.through)
		inspecting.Wait()
		if got := r.Seen(key); len(got.Containers) != 1 || got.Containers[0].ID != "2" {
			t.Errorf("%+v", got)
		}
	})
}
