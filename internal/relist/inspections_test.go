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

// TestAStuckPodDelaysNoOther: while the inspection of a pod hangs, and with it the full list,
// changes of other pods are found at once; changes of the stuck pod are found when its inspection
// returns.
func TestAStuckPodDelaysNoOther(t *testing.T) {
	stuck, other := pod.Key{Namespace: "default", Name: "stuck"}, pod.Key{Namespace: "default", Name: "other"}
	runs := func(key pod.Key, s pod.State) pod.Observed {
		return pod.Observed{Key: key, Containers: []pod.Container{c(key.Name, s)}}
	}
	w := &world{now: map[pod.Key]pod.Observed{stuck: runs(stuck, pod.Running), other: runs(other, pod.Running)}}
	observed(t, w, func(r *Relister, l *ledger) {
		opened := make(chan struct{})
		w.stuck = map[pod.Key]chan struct{}{stuck: opened}
		w.rings <- runtime.Wakeup{Key: stuck, At: time.Now()}
		time.Sleep(11 * time.Second) // a full list hangs too
		synctest.Wait()
		l.take()
		w.set(nil, runs(other, pod.Exited), runs(stuck, pod.Exited))
		w.rings <- runtime.Wakeup{Key: other, At: time.Now()}
		w.rings <- runtime.Wakeup{Key: stuck, At: time.Now()}
		synctest.Wait()
		if got := l.take(); got.kinds[Died] != 1 || got.looks != 1 {
			t.Errorf("beside a pod that is stuck: %+v", got)
		}
		close(opened)
		synctest.Wait()
		// The inspection that was stuck, and the one that the wakeup in the meantime requested.
		if got := l.take(); got.kinds[Died] != 1 || got.looks != 2 || got.lists != 1 {
			t.Errorf("when it answers again: %+v", got)
		}
	})
}

// TestAPodThatCannotBeToldOf: a pod that cannot be inspected keeps its old observation, whatever
// happens to it, and is inspected again by the next list; other pods and the health of listing are
// not affected, also without a stream.
func TestAPodThatCannotBeToldOf(t *testing.T) {
	mute, other := pod.Key{Namespace: "default", Name: "mute"}, pod.Key{Namespace: "default", Name: "other"}
	runs := func(key pod.Key, s pod.State) pod.Observed {
		return pod.Observed{Key: key, Containers: []pod.Container{c(key.Name, s)}}
	}
	w := &world{now: map[pod.Key]pod.Observed{mute: runs(mute, pod.Running), other: runs(other, pod.Running)}, noBell: true}
	observed(t, w, func(r *Relister, l *ledger) {
		l.take()
		w.set(nil, runs(other, pod.Exited), runs(mute, pod.Exited))
		w.mu.Lock()
		w.mute = map[pod.Key]bool{mute: true}
		w.mu.Unlock()
		time.Sleep(DefaultPeriod)
		synctest.Wait()
		if got := l.take(); got.kinds[Died] != 1 || got.lists != 1 || got.badLists != 1 {
			t.Errorf("beside a pod that cannot be told of: %+v", got)
		}
		if got := r.Seen(mute); len(got.Containers) != 1 || got.Containers[0].State != pod.Running {
			t.Errorf("its record is %+v", got)
		}
		if _, err := r.Inspect(t.Context(), mute); !errors.Is(err, errMute) {
			t.Errorf("looking at it: %v", err)
		}
		time.Sleep(2 * unhealthyAfter)
		if err := r.Healthy(); err != nil {
			t.Errorf("listing is unhealthy: %v", err)
		}
		if err := r.Failing(); !errors.Is(err, errMute) {
			t.Errorf("what is out of date is told by %v", err)
		}
		w.mu.Lock()
		w.mute, w.noBell = nil, false
		w.mu.Unlock()
		l.take()
		time.Sleep(DefaultPeriod)
		synctest.Wait()
		if got := l.take(); got.kinds[Died] != 1 || got.kinds[Vanished] != 0 {
			t.Errorf("when it answers again: %+v", got)
		}
		if err := r.Failing(); err != nil {
			t.Errorf("in the end: %v", err)
		}
	})
}

// TestAPodThatCannotBeToldOfIsLookedAtSoon: after an incomplete list the next one is not delayed by
// a healthy stream.
func TestAPodThatCannotBeToldOfIsLookedAtSoon(t *testing.T) {
	w := &world{now: map[pod.Key]pod.Observed{key: seen(c("1", pod.Running))}, mute: map[pod.Key]bool{key: true}}
	observed(t, w, func(r *Relister, l *ledger) {
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := l.take(); got.longest != DefaultPeriod {
			t.Errorf("lists are %s apart", got.longest)
		}
	})
}

// TestManyLooks: only a few inspections that wakeups request run at a time, and none is forgotten.
func TestManyLooks(t *testing.T) {
	w := &world{now: map[pod.Key]pod.Observed{}}
	observed(t, w, func(r *Relister, l *ledger) {
		opened := make(chan struct{})
		w.stuck = map[pod.Key]chan struct{}{}
		const pods = 3 * maxInspections
		for i := range pods {
			key := pod.Key{Namespace: "default", Name: fmt.Sprint(i)}
			w.stuck[key] = opened
			w.set(nil, pod.Observed{Key: key, Containers: []pod.Container{c(key.Name, pod.Running)}})
		}
		l.take()
		for range 2 {
			for key := range w.now {
				w.rings <- runtime.Wakeup{Key: key, At: time.Now()}
			}
		}
		synctest.Wait()
		r.mu.Lock()
		if n := len(r.inspecting); n != maxInspections {
			t.Errorf("%d looks at once, want %d", n, maxInspections)
		}
		r.mu.Unlock()
		close(opened)
		synctest.Wait()
		// Those that had begun before the second wakeup are repeated.
		if got := l.take(); got.kinds[Started] != pods || got.looks != pods+maxInspections {
			t.Errorf("%d starts, %d looks; want %d, %d", got.kinds[Started], got.looks, pods, pods+maxInspections)
		}
	})
}

// TestFailedLooksPutNoListOff: wakeups for a pod that cannot be inspected cause a full list within
// a period, however many there are.
func TestFailedLooksPutNoListOff(t *testing.T) {
	w := &world{now: map[pod.Key]pod.Observed{}}
	observed(t, w, func(r *Relister, l *ledger) {
		w.set(errors.New("away"))
		l.take()
		for range 50 {
			w.rings <- runtime.Wakeup{Key: key, At: time.Now()}
			time.Sleep(DefaultPeriod / 5)
		}
		synctest.Wait()
		if got := l.take(); got.looks != 50 || got.lists < 9 {
			t.Errorf("%d looks and %d lists in 10 s", got.looks, got.lists)
		}
	})
}
