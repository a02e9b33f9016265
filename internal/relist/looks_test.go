package relist

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// TestAStuckPodDelaysNoOther: while a pod's inspection hangs, and with it the full list, what happens to others is
// found at once; and what happened to it meanwhile is found when it answers again.
func TestAStuckPodDelaysNoOther(t *testing.T) {
	stuck, other := pod.Key{Namespace: "default", Name: "stuck"}, pod.Key{Namespace: "default", Name: "other"}
	runs := func(key pod.Key, s pod.State) pod.Observed {
		return pod.Observed{Key: key, Containers: []pod.Container{c(key.Name, s)}}
	}
	w := &world{now: map[pod.Key]pod.Observed{stuck: runs(stuck, pod.Running), other: runs(other, pod.Running)}}
	observed(t, w, func(r *Relister, l *ledger) {
		opened := make(chan struct{})
		w.stuck = map[pod.Key]chan struct{}{stuck: opened}
		w.rings <- runtime.Ring{Key: stuck, At: time.Now()}
		time.Sleep(11 * time.Second) // a full list hangs too
		synctest.Wait()
		l.take()
		w.set(nil, runs(other, pod.Exited), runs(stuck, pod.Exited))
		w.rings <- runtime.Ring{Key: other, At: time.Now()}
		w.rings <- runtime.Ring{Key: stuck, At: time.Now()}
		synctest.Wait()
		if got := l.take(); got.kinds[Died] != 1 || got.looks != 1 {
			t.Errorf("beside a pod that is stuck: %+v", got)
		}
		close(opened)
		synctest.Wait()
		// The look that was stuck, and the one that the ring asked for that came meanwhile.
		if got := l.take(); got.kinds[Died] != 1 || got.looks != 2 || got.lists != 1 {
			t.Errorf("when it answers again: %+v", got)
		}
	})
}

// TestManyLooks: looks that rings ask for are a few at a time, and none is forgotten.
func TestManyLooks(t *testing.T) {
	w := &world{now: map[pod.Key]pod.Observed{}}
	observed(t, w, func(r *Relister, l *ledger) {
		opened := make(chan struct{})
		w.stuck = map[pod.Key]chan struct{}{}
		const pods = 3 * maxLooks
		for i := range pods {
			key := pod.Key{Namespace: "default", Name: fmt.Sprint(i)}
			w.stuck[key] = opened
			w.set(nil, pod.Observed{Key: key, Containers: []pod.Container{c(key.Name, pod.Running)}})
		}
		l.take()
		for range 2 {
			for key := range w.now {
				w.rings <- runtime.Ring{Key: key, At: time.Now()}
			}
		}
		synctest.Wait()
		r.mu.Lock()
		if n := len(r.looks); n != maxLooks {
			t.Errorf("%d looks at once, want %d", n, maxLooks)
		}
		r.mu.Unlock()
		close(opened)
		synctest.Wait()
		// Those that had begun before the second ring are done again.
		if got := l.take(); got.kinds[Started] != pods || got.looks != pods+maxLooks {
			t.Errorf("%d starts, %d looks; want %d, %d", got.kinds[Started], got.looks, pods, pods+maxLooks)
		}
	})
}

// TestFailedLooksPutNoListOff: rings of a pod that cannot be inspected ask for a full list within a period, however
// many come.
func TestFailedLooksPutNoListOff(t *testing.T) {
	w := &world{now: map[pod.Key]pod.Observed{}}
	observed(t, w, func(r *Relister, l *ledger) {
		w.set(errors.New("away"))
		l.take()
		for range 50 {
			w.rings <- runtime.Ring{Key: key, At: time.Now()}
			time.Sleep(DefaultPeriod / 5)
		}
		synctest.Wait()
		if got := l.take(); got.looks != 50 || got.lists < 9 {
			t.Errorf("%d looks and %d lists in 10 s", got.looks, got.lists)
		}
	})
}
