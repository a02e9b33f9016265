package shutdown

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/runtime/fake"
)

// TestShutdownIsToldToABusyLoop: a busy loop still receives the machine's shutdown when it is late,
// with the time that remains.
func TestShutdownIsToldToABusyLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop := make(chan reconcile.Halt)
		s := newPods(loop, manager(false), Options{Critical: 2 * time.Second})
		go s.Begin(t.Context(), 10*time.Second)
		time.Sleep(4500 * time.Millisecond) // busy
		for _, want := range []time.Duration{3600 * time.Millisecond, 1800 * time.Millisecond} {
			select {
			case got := <-loop:
				if got.Grace != want {
					t.Errorf("grace %v, want %v", got.Grace, want)
				}
			case <-time.After(time.Second):
				t.Error("not told")
			}
		}
	})
}

// manager is a service manager that waits for serve, or none.
type manager bool

func (manager) Stopping()            {}
func (manager) Extend(time.Duration) {}
func (m manager) Waits() bool        { return bool(m) }

func newPods(loop chan<- reconcile.Halt, m Manager, o Options) *Pods {
	return &Pods{Runtime: fake.New("boot"), Volumes: machine{}, Loop: loop, Manager: m, Options: o, Log: slog.New(slog.DiscardHandler)}
}

// TestServiceManagerWaits: pods get their whole time from a service manager that waits for serve, and are
// terminated once, although logind and the service manager both begin.
func TestServiceManagerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop := make(chan reconcile.Halt, 10)
		s := newPods(loop, manager(true), Options{Grace: 60 * time.Second, Critical: 20 * time.Second})
		wants := func(graces ...time.Duration) {
			t.Helper()
			for _, want := range graces {
				select {
				case got := <-loop:
					if got.Grace != want {
						t.Errorf("grace %v, want %v", got.Grace, want)
					}
				default:
					t.Errorf("no order with grace %v", want)
				}
			}
			if len(loop) > 0 {
				t.Errorf("ordered again: %+v", <-loop)
			}
		}
		s.Begin(t.Context(), 4500*time.Millisecond) // what logind grants
		wants(36*time.Second, 18*time.Second)
		s.Begin(t.Context(), s.Grace)
		wants()
		s.Cancel()
		wants(0)
		s.Begin(t.Context(), s.Grace)
		wants(36*time.Second, 18*time.Second)
	})
}

// machine has one pod, that runs until a time, and whose driver is called until another one, and has its volume until the
// last one.
type machine struct {
	Runtime
	runs, called, left time.Time
}

func (m machine) List(context.Context) ([]pod.Observed, error) {
	var o pod.Observed
	if time.Now().Before(m.runs) {
		o.Containers = []pod.Container{{UID: "u", State: pod.Running}}
	}
	return []pod.Observed{o}, nil
}

func (machine) LoadPod(pod.UID) (*v1.Pod, error) { return &v1.Pod{}, nil }

func (m machine) Holders() (uids []pod.UID, calling bool) {
	if time.Now().Before(m.left) {
		uids = []pod.UID{"u"}
	}
	return uids, time.Now().Before(m.called)
}

// TestWhatIsWaitedFor: the drivers of volumes end as soon as nothing runs, and they have their volumes back or are not
// called any more.
func TestWhatIsWaitedFor(t *testing.T) {
	for _, c := range []struct{ runs, called, left, want int }{
		{0, 0, 0, 0},
		{4, 0, 0, 4},
		{4, 0, 7, 7},
		{4, 20, 20, 20},
		{4, 20, 60, 20 + 5},
		{4, 60, 60, 30}, // the grace period
		{60, 0, 60, 30},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
			s := newPods(make(chan reconcile.Halt, 10), manager(true), Options{Grace: 30 * time.Second})
			m := machine{runs: at(c.runs), called: at(c.called), left: at(c.left)}
			s.Runtime, s.Volumes = m, m
			s.end(t.Context(), pod.CriticalPriority, s.Grace)
			if over := time.Since(at(c.want)); over < 0 || over > 2*seenEvery {
				t.Errorf("%+v: %v later", c, over)
			}
		})
	}
}
