package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/fake"
)

// execProbe returns a probe that runs the command every second and fails after two failures.
func execProbe(cmd string) *v1.Probe {
	p := &v1.Probe{TimeoutSeconds: 1, PeriodSeconds: 1, SuccessThreshold: 1, FailureThreshold: 2}
	p.Exec = &v1.ExecAction{Command: []string{cmd}}
	return p
}

func execHook(cmd string) *v1.LifecycleHandler {
	return &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{cmd}}}
}

// commands returns the results of exec'd commands: an exit code; a command with a negative one does
// not end.
func commands(codes map[string]func() int) fake.Command {
	return func(ctx context.Context, _ string, cmd []string) (int, error) {
		code := codes[cmd[0]]()
		if code < 0 {
			<-ctx.Done()
			return 0, ctx.Err()
		}
		return code, nil
	}
}

func always(code int) func() int { return func() int { return code } }

// from returns before until d has passed since now, and then code.
func from(d time.Duration, before, code int) func() int {
	at := time.Now().Add(d)
	return func() int {
		if time.Now().Before(at) {
			return before
		}
		return code
	}
}

func (h *house) wantState(name string, started, ready bool, restarts int32) {
	h.t.Helper()
	p := h.board.get(name)
	c := p.Status.ContainerStatuses[0]
	if *c.Started != started || c.Ready != ready || c.RestartCount != restarts {
		h.t.Errorf("started %v ready %v restarts %d, want %v %v %d", *c.Started, c.Ready, c.RestartCount, started, ready, restarts)
	}
	if is := conditionOf(p, v1.PodReady).Status == v1.ConditionTrue; is != ready {
		h.t.Errorf("the pod is ready: %v", is)
	}
}

func TestProbesAreHeardOfAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		rt.OnExec(commands(map[string]func() int{"started": from(5500*time.Millisecond, 1, 0), "ready": from(8500*time.Millisecond, 1, 0)}))
		h := start(t, rt)
		defer h.stop()
		p := web()
		p.Spec.Containers[0].StartupProbe = execProbe("started")
		p.Spec.Containers[0].StartupProbe.FailureThreshold = 10
		p.Spec.Containers[0].ReadinessProbe = execProbe("ready")
		h.want(p)
		h.wantState("web", false, false, 0)
		after(5600 * time.Millisecond)
		h.wantState("web", false, false, 0)
		after(500 * time.Millisecond)
		h.wantState("web", true, false, 0)
		after(3 * time.Second)
		h.wantState("web", true, true, 0)
		since := conditionOf(h.board.get("web"), v1.PodReady).LastTransitionTime
		if ago := time.Since(since.Time); ago > 2*time.Second {
			t.Errorf("ready since %s", ago)
		}
	})
}

func TestLivenessRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		rt.IgnoreTerm("a")
		rt.OnExec(commands(map[string]func() int{"live": from(10500*time.Millisecond, 0, 1)}))
		h := start(t, rt)
		defer h.stop()
		p := web()
		p.Spec.Containers[0].LivenessProbe = execProbe("live")
		p.Spec.Containers[0].LivenessProbe.TerminationGracePeriodSeconds = new(int64(4))
		h.want(p)
		after(11 * time.Second)
		h.wantLiving("u1-a-0") // one failure is not enough
		after(time.Second)
		probes := len(execs(rt))
		after(3900 * time.Millisecond)
		h.wantLiving("u1-a-0") // deaf to TERM
		if n := len(execs(rt)); n != probes {
			t.Errorf("probed %d times while it was ended", n-probes)
		}
		after(200 * time.Millisecond)
		h.wantLiving("u1-a-1")
		h.wantState("web", true, true, 1)
		after(7 * time.Second)
		h.wantLiving("u1-a-2") // the first time was no step of the back-off
		after(7 * time.Second)
		if s := h.board.get("web").Status.ContainerStatuses[0]; s.State.Waiting == nil || s.State.Waiting.Reason != "CrashLoopBackOff" {
			t.Errorf("after the third time: %+v", s.State)
		}
	})
}

// TestFailureIsNoCompletion: an instance that had to be terminated has not completed, whatever its
// exit code is, and however long its restart is delayed. A podrun that is started meanwhile treats
// it the same.
func TestFailureIsNoCompletion(t *testing.T) {
	for name, spoil := range map[string]func(c *v1.Container){
		"liveness":  func(c *v1.Container) { c.LivenessProbe = execProbe("bad") },
		"startup":   func(c *v1.Container) { c.StartupProbe = execProbe("bad") },
		"postStart": func(c *v1.Container) { c.Lifecycle = &v1.Lifecycle{PostStart: execHook("bad")} },
	} {
		for _, restarted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restarted %t", name, restarted), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					rt := forever()
					rt.ExitOnTerm("a", 0)
					rt.OnExec(commands(map[string]func() int{"bad": func() int { return 1 }}))
					job := func() *v1.Pod {
						p := newPod("web", "u1", v1.RestartPolicyOnFailure, "a")
						spoil(&p.Spec.Containers[0])
						return p
					}
					h := start(t, rt)
					defer func() { h.stop() }()
					h.want(job())
					for range 120 { // through several back-offs
						after(time.Second)
						if p := h.board.get("web"); p != nil && p.Status.Phase == v1.PodSucceeded {
							t.Fatalf("after %d runs it has succeeded", len(rt.Ran()))
						}
						if restarted {
							h.stop()
							h = start(t, rt)
							h.want(job())
						}
					}
					if n := len(rt.Ran()); n < 4 {
						t.Errorf("%d runs", n)
					}
				})
			})
		}
	}
}

// TestReadinessWhileEnding: while an instance is being terminated its readiness is probed, but not
// its liveness.
func TestReadinessWhileEnding(t *testing.T) {
	for name, next := range map[string][]*v1.Pod{"not wanted": nil, "edited": {newPod("web", "u2", v1.RestartPolicyAlways, "a")}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				asked := map[string]int{}
				count := func(what string) func() int {
					return func() int {
						mu.Lock()
						defer mu.Unlock()
						asked[what]++
						return 0
					}
				}
				forget := func() {
					mu.Lock()
					defer mu.Unlock()
					clear(asked)
				}
				rt := forever()
				rt.IgnoreTerm("a")
				rt.OnExec(commands(map[string]func() int{"live": count("live"), "ready": count("ready")}))
				h := start(t, rt)
				defer h.stop()
				p := web()
				p.Spec.Containers[0].LivenessProbe, p.Spec.Containers[0].ReadinessProbe = execProbe("live"), execProbe("ready")
				h.want(p)
				after(5 * time.Second)
				h.want(next...)
				after(500 * time.Millisecond)
				forget()
				after(10 * time.Second)
				h.wantLiving("u1-a-0")
				mu.Lock()
				if asked["live"] != 0 || asked["ready"] < 9 {
					t.Errorf("asked %v", asked)
				}
				mu.Unlock()
				after(30 * time.Second)
				forget()
				after(10 * time.Second)
				mu.Lock()
				defer mu.Unlock()
				if len(asked) != 0 {
					t.Errorf("asked after its end: %v", asked)
				}
			})
		})
	}
}

// TestConditionsAreTheRevisions: conditions of the revision before an edit are not taken over by
// the new one.
func TestConditionsAreTheRevisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, forever())
		defer h.stop()
		scheduled := func() time.Time { return conditionOf(h.board.get("web"), v1.PodScheduled).LastTransitionTime.Time }
		h.want(web())
		after(time.Minute)
		first := scheduled()
		h.want(newPod("web", "u2", v1.RestartPolicyAlways, "b"))
		after(time.Minute)
		if second := scheduled(); second.Sub(first) != time.Minute {
			t.Errorf("%s, then %s", first, second)
		}
	})
}

// TestConditionsOfAPodMadeAgain: the manifest of a pod is removed and added again before the pod
// has terminated. The old pod's conditions are not taken over by the pod that is then created under
// the same UID.
func TestConditionsOfAPodMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		rt.IgnoreTerm("a")
		h := start(t, rt)
		defer h.stop()
		h.want(web())
		after(time.Minute)
		first := h.board.get("web").Status.StartTime.Time
		h.want()
		after(time.Second)
		h.want(web())
		after(time.Minute)
		again := h.board.get("web")
		began := again.Status.StartTime.Time
		if !began.After(first.Add(time.Minute)) {
			t.Fatalf("it began at %s, and again at %s", first, began)
		}
		for _, c := range again.Status.Conditions {
			if c.LastTransitionTime.Time.Before(began) {
				t.Errorf("%s since %s, the pod since %s", c.Type, c.LastTransitionTime, began)
			}
		}
	})
}

func execs(rt *fake.Runtime) []string { return callsOf(rt, "Exec ") }

// callsOf returns the calls of one kind.
func callsOf(rt *fake.Runtime, kind string) []string {
	var out []string
	for _, call := range rt.Calls() {
		if what, ok := strings.CutPrefix(call, kind); ok {
			out = append(out, strings.TrimSpace(what))
		}
	}
	return out
}

func TestProbesThatHangOrCannotBeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		rt.OnExec(func(ctx context.Context, _ string, cmd []string) (int, error) {
			if cmd[0] == "hang" {
				<-ctx.Done()
				return 0, ctx.Err()
			}
			return 0, errors.New("no such command")
		})
		h := start(t, rt)
		defer h.stop()
		hanging, missing := newPod("hanging", "u1", v1.RestartPolicyAlways, "a"), newPod("missing", "u2", v1.RestartPolicyAlways, "a")
		hanging.Spec.Containers[0].LivenessProbe, missing.Spec.Containers[0].LivenessProbe = execProbe("hang"), execProbe("missing")
		h.want(hanging, missing)
		after(3500 * time.Millisecond)
		h.wantLiving("u1-a-1 u2-a-0")
	})
}

func TestPostStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		rt.OnExec(func(ctx context.Context, _ string, cmd []string) (int, error) {
			time.Sleep(5 * time.Second)
			return len(cmd) - 1, nil
		})
		h := start(t, rt)
		defer h.stop()
		p, failing := newPod("web", "u1", v1.RestartPolicyAlways, "a", "b"), newPod("failing", "u2", v1.RestartPolicyNever, "b")
		p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: execHook("good")}
		failing.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: execHook("bad")}
		failing.Spec.Containers[0].Lifecycle.PostStart.Exec.Command = []string{"bad", "1"}
		h.want(p, failing)
		h.wantLiving("u1-a-0 u2-b-0")
		h.wantState("web", false, false, 0)
		after(5100 * time.Millisecond)
		h.wantLiving("u1-a-0 u1-b-0")
		h.wantState("web", true, true, 0)
		h.wantPhase("failing", v1.PodFailed)
	})
}

// TestFailedPostStartIsNotReady: an instance is not ready while it is being killed because its
// postStart hook failed.
func TestFailedPostStartIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		rt.IgnoreTerm("a")
		rt.OnExec(func(context.Context, string, []string) (int, error) {
			time.Sleep(time.Second)
			return 1, nil
		})
		h := start(t, rt)
		defer h.stop()
		p := newPod("web", "u1", v1.RestartPolicyAlways, "a")
		p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: execHook("bad")}
		h.want(p)
		for range 3 {
			after(5 * time.Second)
			h.wantLiving("u1-a-0")
			h.wantState("web", false, false, 0)
		}
	})
}

// TestEndingPodShowsItsReadiness: the readiness probe of a terminating pod is run until the pod has
// ended.
func TestEndingPodShowsItsReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var code atomic.Int32
		rt := forever()
		rt.IgnoreTerm("a")
		rt.OnExec(commands(map[string]func() int{"ready": func() int { return int(code.Load()) }}))
		h := start(t, rt)
		defer h.stop()
		p := web()
		p.Spec.Containers[0].ReadinessProbe = execProbe("ready")
		h.want(p)
		after(3 * time.Second)
		h.wantState("web", true, true, 0)
		h.want()
		after(5 * time.Second)
		h.wantState("web", true, true, 0)
		for _, bad := range []bool{true, false, true} {
			if code.Store(0); bad {
				code.Store(1)
			}
			after(5 * time.Second)
			h.wantState("web", true, !bad, 0)
			h.wantLeaving("web", true)
			for _, kind := range []v1.PodConditionType{v1.PodReady, v1.ContainersReady} {
				if got := conditionOf(h.board.get("web"), kind); got.Status != conditionStatus(!bad) || time.Since(got.LastTransitionTime.Time) > 5*time.Second {
					t.Errorf("%+v", got)
				}
			}
		}
	})
}

func conditionStatus(is bool) v1.ConditionStatus {
	if is {
		return v1.ConditionTrue
	}
	return v1.ConditionFalse
}

// TestPostStartOfAnOlderPodrun: the hook of an instance counts as done if the podrun that started
// the instance did not record that the hook was due.
func TestPostStartOfAnOlderPodrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		p := newPod("web", "u1", v1.RestartPolicyAlways, "a")
		p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: execHook("good")}
		for _, err := range []error{
			rt.SavePod(p, "serve"), rt.CreateSandbox(t.Context(), p, 0),
			rt.StartContainer(t.Context(), runtime.Start{Pod: p, Container: &p.Spec.Containers[0], Sandbox: pod.Sandbox{ID: "u1-sandbox-0"}, Image: pod.Image{Name: "a:1"}}),
			rt.Note("u1", "u1-a-0", pod.Notes{}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		rt.OnExec(func(_ context.Context, _ string, cmd []string) (int, error) {
			t.Errorf("ran again: %q", cmd)
			return 0, nil
		})
		h := start(t, rt)
		h.want(p)
		after(10 * time.Second)
		h.wantState("web", true, true, 0)
		h.wantLiving("u1-a-0")
		h.stop()
	})
}

// TestPostStartOfAnEarlierPodrun: a hook during or before which podrun was killed is run by the
// next podrun; a hook that was done is not.
func TestPostStartOfAnEarlierPodrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, ran := forever(), 0
		rt.OnExec(func(ctx context.Context, _ string, _ []string) (int, error) {
			select {
			case <-time.After(5 * time.Second):
				ran++
				return 0, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		})
		h := start(t, rt)
		again := func() {
			h.stop()
			h = start(t, rt)
			p := newPod("web", "u1", v1.RestartPolicyAlways, "a", "b")
			p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: execHook("good")}
			h.want(p)
		}
		again()
		after(3 * time.Second)
		again()
		after(3 * time.Second)
		h.wantLiving("u1-a-0")
		h.wantState("web", false, false, 0)
		after(3 * time.Second)
		h.wantLiving("u1-a-0 u1-b-0")
		h.wantState("web", true, true, 0)
		again()
		after(10 * time.Second)
		h.wantLiving("u1-a-0 u1-b-0")
		h.stop()
		if ran != 1 {
			t.Errorf("it ran whole %d times", ran)
		}
	})
}

func TestPreStopIsPaidFromTheGracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		rt.IgnoreTerm("b")
		rt.OnExec(commands(map[string]func() int{"hang": always(-1)}))
		h := start(t, rt)
		defer h.stop()
		p := newPod("web", "u1", v1.RestartPolicyAlways, "a", "b")
		p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 10}}}
		p.Spec.Containers[1].Lifecycle = &v1.Lifecycle{PreStop: execHook("hang")}
		h.want(p)
		h.wantLiving("u1-a-0 u1-b-0")
		h.want()
		after(9900 * time.Millisecond)
		h.wantLiving("u1-a-0 u1-b-0")
		after(200 * time.Millisecond)
		h.wantLiving("u1-b-0")
		after(21800 * time.Millisecond)
		h.wantLiving("u1-b-0")
		after(200 * time.Millisecond)
		h.wantEmpty()
		if got := strings.Join(callsOf(rt, "SignalContainer "), ", "); got != "u1-a-0 SIGTERM, u1-b-0 SIGTERM, u1-b-0 SIGKILL" {
			t.Errorf("signals: %s", got)
		}
	})
}

func after1(p *v1.Pod, names string) *v1.Pod {
	p.Annotations[pod.AnnotationAfter] = names
	p.Spec.NodeName = "n"
	return p
}

func TestPodsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"a:1": {}, "b:1": {}, "j:1": {Run: 5 * time.Second}})
		rt.OnExec(commands(map[string]func() int{"ready": from(8*time.Second, 1, 0)}))
		h := start(t, rt)
		defer h.stop()
		db := after1(newPod("db-n", "u2", v1.RestartPolicyAlways, "b"), "job")
		db.Spec.Containers[0].ReadinessProbe = execProbe("ready")
		h.want(after1(newPod("web-n", "u1", v1.RestartPolicyAlways, "a"), "db, job"), db, newPod("job-n", "u3", v1.RestartPolicyNever, "j"))
		h.wantLiving("u3-j-0")
		if s := h.board.get("web-n").Status; s.Phase != v1.PodPending || s.Reason != "WaitingForPods" || s.Message != "starts after default/db-n, default/job-n" {
			t.Errorf("status: %+v", s)
		}
		after(5100 * time.Millisecond)
		h.wantLiving("u2-b-0")
		after(4 * time.Second)
		h.wantLiving("u1-a-0 u2-b-0")
		rt.Exit("u2-b-0", 1)
		rt.Exit("u1-a-0", 1)
		synctest.Wait()
		h.wantLiving("u1-a-1 u2-b-1") // what has started does not wait again
	})
}
