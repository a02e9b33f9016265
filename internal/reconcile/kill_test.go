package reconcile_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/runtime/fake"
)

// TestKilledAnywhere kills podrun after each mutation of a history of start, crash, edit and
// delete, restarts it, and expects the same result each time.
func TestKilledAnywhere(t *testing.T) {
	edited := func(uid string) *v1.Pod {
		p := newPod("web", "u2", v1.RestartPolicyAlways, "a", "b")
		p.Spec.Containers[0].Args = []string{uid}
		return p
	}
	job := func() *v1.Pod { return newPod("job", "u3", v1.RestartPolicyNever, "j") }
	initialized := func() *v1.Pod { return withInit(newPod("web", "u4", v1.RestartPolicyAlways, "a"), "i", "S") }
	hooked := func() *v1.Pod {
		p := newPod("web", "u5", v1.RestartPolicyAlways, "a", "b")
		p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: execHook("good"), PreStop: execHook("good")}
		p.Spec.Containers[0].LivenessProbe, p.Spec.Containers[1].StartupProbe = execProbe("good"), execProbe("good")
		return p
	}
	images := map[string]fake.Script{"a:1": {}, "b:1": {}, "j:1": {Run: time.Second}, "i:1": {Run: time.Second}, "s:1": {}}
	histories := map[string]struct {
		before, last []*v1.Pod
		running      string
	}{
		"start":            {nil, []*v1.Pod{edited("x"), job()}, "u2-a-0 u2-b-0"},
		"edit":             {[]*v1.Pod{web(), job()}, []*v1.Pod{edited("x"), job()}, "u2-a-0 u2-b-0"},
		"init containers":  {nil, []*v1.Pod{initialized(), job()}, "u4-a-0 u4-s-0"},
		"a sidecar's end":  {[]*v1.Pod{initialized(), job()}, nil, ""},
		"hooks":            {nil, []*v1.Pod{hooked(), job()}, "u5-a-0 u5-b-0"},
		"hooks at the end": {[]*v1.Pod{hooked(), job()}, nil, ""},
		"delete":           {[]*v1.Pod{web(), job()}, nil, ""},
	}
	for name, hist := range histories {
		t.Run(name, func(t *testing.T) {
			for n, done := 1, false; !done; n++ {
				synctest.Test(t, func(t *testing.T) {
					rt := runtimeWith(images)
					h := start(t, rt)
					h.want(hist.before...)
					after(10 * time.Second)
					rt.CutAfter(n)
					h.want(hist.last...)
					after(10 * time.Second)
					done = rt.Left() > 0 // the whole history went through
					h.stop()
					rt.CutAfter(-1)
					after(time.Second)
					h = start(t, rt)
					h.want(hist.last...)
					after(10 * time.Minute)
					h.wantLiving(hist.running)
					if len(hist.last) == 0 {
						h.wantEmpty()
					}
					if starts := countStarts(rt); starts > 1 {
						t.Errorf("cut after %d: the job ran %d times", n, starts)
					}
					h.stop()
				})
			}
		})
	}
}

// countStarts counts how many instances of the job were started.
func countStarts(rt *fake.Runtime) (n int) {
	for _, id := range rt.Ran() {
		if strings.HasPrefix(id, "u3-j-") {
			n++
		}
	}
	return n
}
