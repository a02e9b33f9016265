package reconcile_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/runtime/fake"
)

// setClock runs f on machines whose wall clock is set by an hour, while podrun runs or between two
// podruns.
func setClock(t *testing.T, f func(t *testing.T, rt *fake.Runtime, set func(h *house) *house, restarted bool, by time.Duration)) {
	for name, by := range map[string]time.Duration{"on": time.Hour, "back": -time.Hour} {
		for _, restarted := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " and podrun started anew"}[restarted], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					rt := runtimeWith(map[string]fake.Script{"a:1": {}, "b:1": {}, "crashes:1": {Run: time.Second, Exit: 1}})
					f(t, rt, func(h *house) *house {
						if restarted {
							h.stop()
						}
						rt.SetClock(by)
						if restarted {
							h = start(t, rt, onWall(rt))
						}
						return h
					}, restarted, by)
				})
			})
		}
	}
}

func onWall(rt *fake.Runtime) func(*reconcile.Options) {
	return func(o *reconcile.Options) { o.Wall = rt.Wall }
}

// TestClockIsSetWhileBackingOff: the back-off is as long as without the change. For a podrun that
// was started after the change, it is at most that long.
func TestClockIsSetWhileBackingOff(t *testing.T) {
	setClock(t, func(t *testing.T, rt *fake.Runtime, set func(h *house) *house, restarted bool, _ time.Duration) {
		h := start(t, rt, onWall(rt))
		p := newPod("web", "u1", v1.RestartPolicyAlways, "crashes")
		h.want(p)
		after(5 * time.Second) // the second instance has ended at 2 s; the next is due at 12 s
		h = set(h)
		defer func() { h.stop() }()
		h.want(p.DeepCopy())
		starts := func() int { return len(callsOf(rt, "StartContainer ")) }
		after(6900 * time.Millisecond)
		if n := starts(); n != 2 && !restarted {
			t.Errorf("%d starts before the pause is over", n)
		}
		if after(200 * time.Millisecond); starts() != 3 && !restarted {
			t.Errorf("%d starts when the pause is over", starts())
		}
		if after(4 * time.Second); starts() != 3 {
			t.Errorf("%d starts", starts())
		}
	})
}

// TestClockIsSetInAGracePeriod: the grace period is as long as without the change. For a podrun
// that was started after the change, it is at most that long.
func TestClockIsSetInAGracePeriod(t *testing.T) {
	setClock(t, func(t *testing.T, rt *fake.Runtime, set func(h *house) *house, restarted bool, by time.Duration) {
		rt.IgnoreTerm("a")
		h := start(t, rt, onWall(rt))
		h.want(web())
		h.want()
		after(10 * time.Second)
		h = set(h)
		defer func() { h.stop() }()
		h.want()
		after(19900 * time.Millisecond)
		if !restarted || by < 0 {
			h.wantLiving("u1-a-0")
		}
		if after(200 * time.Millisecond); !restarted {
			h.wantLiving("")
		}
		after(10 * time.Second)
		h.wantEmpty()
	})
}

// TestClockIsSetBeforeADeadline: the deadline is reached at the right time. For a podrun that was
// started after the change, it is reached no later than if the pod had started with that podrun.
func TestClockIsSetBeforeADeadline(t *testing.T) {
	setClock(t, func(t *testing.T, rt *fake.Runtime, set func(h *house) *house, restarted bool, _ time.Duration) {
		h := start(t, rt, onWall(rt))
		wanted := func() *v1.Pod {
			p := web()
			p.Spec.ActiveDeadlineSeconds = new(int64(30))
			return p
		}
		h.want(wanted())
		after(10 * time.Second)
		h = set(h)
		defer func() { h.stop() }()
		h.want(wanted())
		if after(19900 * time.Millisecond); !restarted {
			h.wantLiving("u1-a-0")
		}
		if after(200 * time.Millisecond); !restarted {
			h.wantLiving("")
		}
		after(10 * time.Second)
		h.wantPhase("web", v1.PodFailed)
		// A job that came to its end in time is not late when the clock is set.
		job := newPod("job", "u2", v1.RestartPolicyNever, "b")
		job.Spec.ActiveDeadlineSeconds = new(int64(30))
		h.want(wanted(), job)
		after(time.Second)
		rt.SetClock(5 * time.Hour)
		rt.Exit("u2-b-0", 0)
		after(time.Minute)
		h.wantPhase("job", v1.PodSucceeded)
	})
}

// TestClockIsSetBeforeTheFirstProbe: an instance whose start time is in the future is probed.
func TestClockIsSetBeforeTheFirstProbe(t *testing.T) {
	setClock(t, func(t *testing.T, rt *fake.Runtime, set func(h *house) *house, _ bool, _ time.Duration) {
		h := start(t, rt, onWall(rt))
		p := web()
		p.Spec.Containers[0].ReadinessProbe = execProbe("ready")
		p.Spec.Containers[0].ReadinessProbe.InitialDelaySeconds = 5
		h.want(p)
		after(time.Second)
		h = set(h)
		defer func() { h.stop() }()
		h.want(p.DeepCopy())
		after(7 * time.Second)
		if asked := strings.Join(execs(rt), " "); !strings.Contains(asked, "ready") {
			t.Errorf("asked: %s", asked)
		}
	})
}

// TestClockIsSetByMoreThanTheBoot: a machine without a battery boots in 1970. When the network's time is there and podrun
// is started anew, a pod is not older than the boot.
func TestClockIsSetByMoreThanTheBoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"a:1": {}})
		booted := func(o *reconcile.Options) { o.Booted = time.Now().Add(-time.Second) }
		h := start(t, rt, onWall(rt), booted)
		begun := time.Now().Add(-time.Second)
		p := web()
		p.Spec.ActiveDeadlineSeconds = new(int64(30))
		h.want(p.DeepCopy())
		after(10 * time.Second)
		rt.SetClock(50 * 365 * 24 * time.Hour)
		h.stop()
		h = start(t, rt, onWall(rt), func(o *reconcile.Options) { o.Booted = begun })
		defer func() { h.stop() }()
		h.want(p.DeepCopy())
		after(18 * time.Second)
		h.wantLiving("u1-a-0")
		after(3 * time.Second) // and not younger than it
		h.wantLiving("")
		h.wantPhase("web", v1.PodFailed)
	})
}

// TestDeadlineGoesOnAfterAReboot: the time before a reboot counts for a run that goes on.
func TestDeadlineGoesOnAfterAReboot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"a:1": {}})
		h := start(t, rt)
		p := newPod("ever", "u1", v1.RestartPolicyOnFailure, "a")
		p.Annotations[plan.AnnotationRunPolicy] = plan.RunOnceEver
		p.Spec.ActiveDeadlineSeconds = new(int64(30))
		h.want(p.DeepCopy())
		after(20 * time.Second)
		h.stop()
		rt.Reboot("boot-2")
		booted := time.Now()
		h = start(t, rt, func(o *reconcile.Options) { o.Boot, o.Booted = "boot-2", booted })
		defer func() { h.stop() }()
		h.want(p.DeepCopy())
		after(5 * time.Second)
		h.wantLiving("u1-a-1")
		after(7 * time.Second)
		h.wantPhase("ever", v1.PodFailed)
	})
}
