package reconcile_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/fake"
)

// TestGraceIsNotGivenAgain: podrun is killed while a pod is being terminated, and the next podrun
// continues with the rest of the grace period.
func TestGraceIsNotGivenAgain(t *testing.T) {
	for name, wanted := range map[string][]*v1.Pod{
		"not wanted":   nil,
		"wanted again": {web()},
		"edited":       {newPod("web", "u2", v1.RestartPolicyAlways, "a")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := forever()
				rt.IgnoreTerm("a")
				h := start(t, rt)
				h.want(web())
				h.want()
				after(20 * time.Second)
				rt.CutAfter(0)
				h.stop()
				rt.CutAfter(-1)
				h = start(t, rt)
				defer h.stop()
				h.want(wanted...)
				after(9900 * time.Millisecond)
				h.wantLiving("u1-a-0")
				after(200 * time.Millisecond)
				if starts := len(callsOf(rt, "StartContainer ")); strings.Contains(h.living(), "u1-a-0") != (wanted != nil) || starts != 1+len(wanted) {
					t.Errorf("it was given another grace period: %d starts, %q lives", starts, h.living())
				}
				if got := strings.Join(callsOf(rt, "SignalContainer "), ", "); got != "u1-a-0 SIGTERM, u1-a-0 SIGKILL" {
					t.Errorf("signals: %s", got)
				}
			})
		})
	}
}

// TestGraceBeginsOnce: podrun is killed after any step of sending an instance its stop signal.
func TestGraceBeginsOnce(t *testing.T) {
	for n := 2; n <= 4; n++ { // before that it has not begun
		synctest.Test(t, func(t *testing.T) {
			rt := forever()
			rt.IgnoreTerm("a")
			h := start(t, rt)
			h.want(web())
			rt.CutAfter(n)
			h.want()
			after(20 * time.Second)
			h.stop()
			rt.CutAfter(-1)
			h = start(t, rt)
			defer h.stop()
			h.want()
			after(9900 * time.Millisecond)
			h.wantLiving("u1-a-0")
			after(200 * time.Millisecond)
			if strings.Contains(h.living(), "u1-a-0") {
				t.Errorf("killed after %d steps: another grace period", n)
			}
			if !slices.Contains(callsOf(rt, "SignalContainer "), "u1-a-0 SIGTERM") {
				t.Errorf("killed after %d steps: it was never told", n)
			}
		})
	}
}

// TestStopSignalWithoutAnAnswer: an exit that follows a stop signal is no result if the signal may have been delivered,
// also for the next podrun; it is one if it certainly was not.
func TestStopSignalWithoutAnAnswer(t *testing.T) {
	for _, again := range []bool{false, true} {
		for err, phase := range map[error]v1.PodPhase{
			runtime.ErrUnavailable:       v1.PodRunning,
			context.DeadlineExceeded:     v1.PodRunning,
			errors.New("no such signal"): v1.PodSucceeded,
		} {
			synctest.Test(t, func(t *testing.T) {
				rt := forever()
				h := start(t, rt)
				p := newPod("web", "u1", v1.RestartPolicyOnFailure, "a")
				h.want(p)
				after(10 * time.Second)
				rt.Fail("SignalContainer", err)
				rt.LoseSandbox("u1-sandbox-0")
				after(100 * time.Millisecond)
				if again {
					h.stop()
				}
				rt.Exit("u1-a-0", 0)
				rt.Fail("SignalContainer", nil)
				if again {
					h = start(t, rt)
					h.want(p)
				}
				defer h.stop()
				after(time.Minute)
				if got := h.board.get("web").Status.Phase; got != phase {
					t.Errorf("%v, another podrun %v: %s, want %s", err, again, got, phase)
				}
			})
		}
	}
}

// TestGraceOfThePodAfterAProbe: a pod is removed while a probe's failure, with a grace period of its own, terminates a
// container. The pod's grace period begins with the removal, once, whenever podrun is killed. Hook and stop signal are
// not repeated.
func TestGraceOfThePodAfterAProbe(t *testing.T) {
	for n := range 4 {
		synctest.Test(t, func(t *testing.T) {
			rt := forever()
			rt.IgnoreTerm("a")
			rt.OnExec(commands(map[string]func() int{"bad": func() int { return 1 }, "bye": func() int { return 0 }}))
			h := start(t, rt)
			p := web()
			p.Spec.Containers[0].LivenessProbe = execProbe("bad")
			p.Spec.Containers[0].LivenessProbe.TerminationGracePeriodSeconds = new(int64(600))
			p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: execHook("bye")}
			h.want(p)
			after(2 * time.Minute)
			rt.CutAfter(n)
			h.want()
			after(20 * time.Second)
			h.stop()
			rt.CutAfter(-1)
			h = start(t, rt)
			defer h.stop()
			h.want()
			after(9900 * time.Millisecond)
			h.wantLiving("u1-a-0")
			if n < 2 { // the host ports are yielded before it is saved: what is not saved begins again
				after(20 * time.Second)
			}
			after(200 * time.Millisecond)
			h.wantLiving("")
			if got := strings.Join(callsOf(rt, "SignalContainer "), ", "); got != "u1-a-0 SIGTERM, u1-a-0 SIGKILL" {
				t.Errorf("signals: %s", got)
			}
			if hooks := slices.DeleteFunc(execs(rt), func(e string) bool { return !strings.Contains(e, "bye") }); len(hooks) != 1 {
				t.Errorf("hooks: %q", hooks)
			}
		})
	}
}

// TestGraceBeginsWithTheSignal: while the runtime is unavailable no signal is sent, and no grace
// period begins.
func TestGraceBeginsWithTheSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		rt.IgnoreTerm("a")
		h := start(t, rt)
		h.want(web())
		rt.Fail("SignalContainer", runtime.ErrUnavailable)
		h.want()
		after(time.Minute)
		h.stop()
		h = start(t, rt)
		defer h.stop()
		h.want()
		after(time.Minute)
		rt.Fail("SignalContainer", nil)
		after(29 * time.Second)
		h.wantLiving("u1-a-0")
		after(3 * time.Second)
		h.wantLiving("")
	})
}

// TestPreStopGoesOnAfterARestart: the hook of a podrun that was killed is run again, within the
// rest of the grace period.
func TestPreStopGoesOnAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		rt.IgnoreTerm("a")
		rt.OnExec(commands(map[string]func() int{"hang": always(-1)}))
		h := start(t, rt)
		p := web()
		p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: execHook("hang")}
		h.want(p)
		h.want()
		after(20 * time.Second)
		rt.CutAfter(0)
		h.stop()
		rt.CutAfter(-1)
		h = start(t, rt)
		defer h.stop()
		h.want()
		after(9900 * time.Millisecond)
		if n := len(execs(rt)); n != 2 {
			t.Errorf("the hook ran %d times", n)
		}
		if got := callsOf(rt, "SignalContainer "); len(got) > 0 {
			t.Errorf("signals before its time is over: %s", got)
		}
		after(200 * time.Millisecond)
		h.wantLiving("u1-a-0")
		after(2 * time.Second)
		h.wantEmpty()
	})
}

// TestPreStopRunsTwiceAtMost: however often podrun is killed while the hook runs.
func TestPreStopRunsTwiceAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		rt.OnExec(commands(map[string]func() int{"hang": always(-1)}))
		h := start(t, rt)
		p := web()
		p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: execHook("hang")}
		h.want(p)
		for range 3 {
			h.want()
			after(time.Second)
			rt.CutAfter(0)
			h.stop()
			rt.CutAfter(-1)
			h = start(t, rt)
		}
		defer h.stop()
		h.want()
		after(time.Second)
		if n := len(execs(rt)); n != 2 {
			t.Errorf("the hook ran %d times", n)
		}
		if got := callsOf(rt, "SignalContainer "); len(got) == 0 {
			t.Error("no stop signal follows it")
		}
		after(30 * time.Second)
		h.wantEmpty()
	})
}

// TestAVerdictOutlivesPodrun: an instance that failed its probe and then exited with 0 at its stop
// signal has not completed, even if podrun was killed meanwhile.
func TestAVerdictOutlivesPodrun(t *testing.T) {
	for _, ends := range []string{"unseen", "seen", "not"} {
		t.Run(ends, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := forever()
				rt.IgnoreTerm("a")
				rt.OnExec(commands(map[string]func() int{"live": always(1)}))
				h := start(t, rt)
				p := newPod("web", "u1", v1.RestartPolicyOnFailure, "a")
				p.Spec.Containers[0].LivenessProbe = execProbe("live")
				p.Spec.Containers[0].LivenessProbe.TerminationGracePeriodSeconds = new(int64(5))
				h.want(p)
				after(2 * time.Second) // the second failure is at 1 s
				rt.CutAfter(0)
				h.stop()
				if ends == "unseen" {
					rt.Exit("u1-a-0", 0)
				}
				rt.CutAfter(-1)
				h = start(t, rt)
				defer h.stop()
				h.want(p)
				if ends == "seen" {
					rt.Exit("u1-a-0", 0)
				}
				after(3900 * time.Millisecond)
				if alive := strings.Contains(h.living(), "u1-a-0"); alive != (ends == "not") {
					t.Errorf("alive: %v", alive)
				}
				after(200 * time.Millisecond)
				if strings.Contains(h.living(), "u1-a-0") {
					t.Error("not ended within its probe's grace period")
				}
				after(10 * time.Second)
				if starts := len(callsOf(rt, "StartContainer ")); starts < 2 {
					t.Errorf("%s after %d start", h.board.get("web").Status.Phase, starts)
				}
			})
		})
	}
}

// TestAllContainersRestart: one exit restarts all containers, including init containers, in the
// same sandbox. podrun may be killed after any step of it.
func TestAllContainersRestart(t *testing.T) {
	for n, done := 1, false; !done; n++ {
		synctest.Test(t, func(t *testing.T) {
			rt := runtimeWith(map[string]fake.Script{"a:1": {}, "b:1": {}, "i:1": {Run: time.Second}, "s:1": {}})
			rt.IgnoreTerm("a") // it is killed at once
			h := start(t, rt)
			wanted := func() *v1.Pod {
				p := withInit(newPod("web", "u1", v1.RestartPolicyNever, "a", "b"), "i", "S")
				c := &p.Spec.Containers[1]
				c.RestartPolicy = new(v1.ContainerRestartPolicyNever)
				c.RestartPolicyRules = []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers,
					ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{88}}}}
				return p
			}
			h.want(wanted())
			after(2 * time.Second)
			h.wantLiving("u1-a-0 u1-b-0 u1-s-0")
			rt.CutAfter(n)
			rt.Exit("u1-b-0", 88)
			after(5 * time.Second)
			done = rt.Left() > 0
			h.stop()
			rt.CutAfter(-1)
			h = start(t, rt)
			h.want(wanted())
			after(time.Minute)
			h.wantLiving("u1-a-1 u1-b-1 u1-s-1")
			p := h.board.get("web")
			if made := callsOf(rt, "CreateSandbox "); len(made) != 1 || p.Status.Phase != v1.PodRunning || p.Status.InitContainerStatuses[0].RestartCount != 1 {
				t.Errorf("cut after %d: %s, %+v", n, made, p.Status)
			}
			rt.Exit("u1-a-1", 0)
			rt.Exit("u1-b-1", 0)
			after(time.Minute)
			h.wantPhase("web", v1.PodSucceeded)
			h.stop()
		})
	}
}

// TestEndlessGrace: Kubernetes accepts a grace period longer than a time.Duration can be. It is one.
func TestEndlessGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		rt.IgnoreTerm("a")
		h := start(t, rt)
		defer h.stop()
		p := web()
		p.Spec.TerminationGracePeriodSeconds = new(int64(math.MaxInt64))
		h.want(p)
		after(10 * time.Second)
		h.want()
		after(24 * time.Hour)
		h.wantLiving("u1-a-0")
		rt.Exit("u1-a-0", 0)
		after(time.Minute)
		h.wantLiving("")
	})
}
