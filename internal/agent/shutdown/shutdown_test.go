package shutdown

import (
	"cmp"
	"context"
	"log/slog"
	"math"
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
		s := newPods(loop, manager(false), Options{Grace: 10 * time.Second, Critical: 2 * time.Second})
		go s.Begin(t.Context(), 10*time.Second)
		time.Sleep(4500 * time.Millisecond) // busy
		for _, want := range []time.Duration{3600 * time.Millisecond, 4950 * time.Millisecond} {
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
	return &Pods{
		Runtime: fake.New("boot"), Volumes: machine{}, Loop: loop, Manager: m, Options: o, Log: slog.New(slog.DiscardHandler),
		Terminates: func(o pod.Observed) bool { return o.Owner == "serve" },
	}
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
		wants(36*time.Second, 54*time.Second)
		s.Begin(t.Context(), s.Grace)
		wants()
		s.Cancel(t.Context())
		wants(0)
		s.Begin(t.Context(), s.Grace)
		wants(36*time.Second, 54*time.Second)
	})
}

// machine has one pod, that runs until a time, and whose driver is called until another one, and has its volume until the
// last one. It is served unless it has another owner.
type machine struct {
	Runtime
	runs, called, left time.Time
	owner              string
}

func (m machine) List(context.Context) ([]pod.Observed, error) {
	o := pod.Observed{Owner: cmp.Or(m.owner, "serve"), Data: []pod.UID{"u"}}
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

// TestNotWaitedFor: what a podrun once has left running, which serve does not terminate, holds nothing up, and neither
// do its volumes. A call of a driver is for others too.
func TestNotWaitedFor(t *testing.T) {
	for _, c := range []struct{ runs, called, left, want int }{
		{60, 0, 0, 0},
		{60, 0, 60, 0},
		{60, 3, 60, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
			s := newPods(make(chan reconcile.Halt, 10), manager(true), Options{Grace: 30 * time.Second})
			m := machine{runs: at(c.runs), called: at(c.called), left: at(c.left), owner: "once"}
			s.Runtime, s.Volumes = m, m
			s.Begin(t.Context(), s.Grace)
			if over := time.Since(at(c.want)); over < 0 || over > 4*seenEvery {
				t.Errorf("%+v: %v later", c, over)
			}
		})
	}
}

// TestShares: first the pods of normal priority are terminated, then the critical ones, which have what the others leave
// of the time, and some in any case. Both have less of less time.
func TestShares(t *testing.T) {
	const never = 3600
	seconds := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
	for name, c := range map[string]struct {
		grace, critical, within, runs float64 // what the options say, what is granted, how long a normal pod runs
		at, first, then               float64 // when the critical ones are terminated, and both grace periods
	}{
		"default flags, nothing runs":  {30, 0, 30, 0, 0, 25.2, 27},
		"default flags, a pod obeys":   {30, 0, 30, 10, 10, 25.2, 18},
		"default flags, none does":     {30, 0, 30, never, 28, 25.2, 1.8},
		"default flags, 4.5 s granted": {30, 0, 4.5, never, 4.05, 3.645, 0.405},
		"a part for each":              {60, 20, 60, never, 40, 36, 18},
		"a part for each, less time":   {60, 20, 4.5, never, 3, 2.7, 1.35},
		"a part for each, one obeys":   {60, 20, 4.5, 1, 1, 2.7, 3.15},
		"all for the critical ones":    {30, 30, 30, never, 2, 1.8, 25.2},
		"little time":                  {5, 0.1, 5, never, 4.5, 4.05, 0.45},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				loop := make(chan reconcile.Halt, 10)
				s := newPods(loop, manager(false), Options{Grace: seconds(c.grace), Critical: seconds(c.critical)})
				began := time.Now()
				s.Runtime = machine{runs: began.Add(seconds(c.runs))}
				done := make(chan time.Duration, 1)
				go func() {
					s.Begin(t.Context(), seconds(c.within))
					done <- time.Since(began)
				}()
				for _, want := range []struct {
					below     int64
					at, grace float64
				}{{pod.CriticalPriority, 0, c.first}, {math.MaxInt64, c.at, c.then}} {
					var got reconcile.Halt
					select {
					case got = <-loop:
					case <-time.After(seconds(never)):
					}
					late, short := time.Since(began)-seconds(want.at), seconds(want.grace)-got.Grace
					if got.Below != want.below || late < 0 || late > 2*seenEvery || short < -time.Millisecond || short > 2*seenEvery {
						t.Errorf("after %v %+v, want %+v", time.Since(began), got, want)
					}
				}
				if took := <-done; took > seconds(c.within)+2*recordTime {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}
