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
	return &Pods{Runtime: fake.New("boot"), Loop: loop, Manager: m, Options: o, Log: slog.New(slog.DiscardHandler)}
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

// machine is a runtime with one pod, of which things are left until times.
type machine struct {
	Runtime
	runs, left time.Time
}

func (m machine) List(context.Context) ([]pod.Observed, error) {
	var o pod.Observed
	if time.Now().Before(m.runs) {
		o.Containers = []pod.Container{{UID: "u", State: pod.Running}}
	}
	if time.Now().Before(m.left) {
		o.Sandboxes = []pod.Sandbox{{UID: "u"}}
	}
	return []pod.Observed{o}, nil
}

func (machine) LoadPod(pod.UID) (*v1.Pod, error) { return &v1.Pod{}, nil }

// TestWhatIsWaitedFor: the machine goes down as soon as nothing runs, and volumes and networks are back or do not come
// back.
func TestWhatIsWaitedFor(t *testing.T) {
	for _, c := range []struct{ runs, left, want time.Duration }{
		{0, 0, 0},
		{4, 0, 4},
		{4, 7, 7},
		{4, 60, 4 + 5},
		{60, 60, 30}, // the grace period
		{28, 60, 30},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			s := newPods(make(chan reconcile.Halt, 10), manager(true), Options{Grace: 30 * time.Second})
			s.Runtime = machine{runs: began.Add(c.runs * time.Second), left: began.Add(c.left * time.Second)}
			s.end(t.Context(), 1, s.Grace)
			if took := time.Since(began); took < c.want*time.Second || took > c.want*time.Second+2*seenEvery {
				t.Errorf("%+v: took %v", c, took)
			}
		})
	}
}
