package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

func preStop(c *pod.Container) { c.PreStop = true }

func bad(why string) map[string]pod.Probed {
	return map[string]pod.Probed{"a0": {Failed: &pod.Failed{Why: why}}}
}

func postStart(p *v1.Pod) *v1.Pod {
	p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{}}
	return p
}

func TestFailedProbes(t *testing.T) {
	always, never, onFailure := v1.RestartPolicyAlways, v1.RestartPolicyNever, v1.RestartPolicyOnFailure
	box, running := sandbox(0, true), ctr("a", 0, pod.Running)
	own := map[string]pod.Probed{"a0": {Failed: &pod.Failed{Why: "failed startup probe", Grace: new(5 * time.Second)}}}
	compare(t, []planCase{
		{"ended", Input{Pod: wanted(always, "a"), Observed: observed(box, running), Probed: bad("failed liveness probe")}, `
terminate a a0 grace 30s (failed liveness probe)
wake 30s`},
		{"with the probe's own grace", Input{Pod: wanted(always, "a"), Observed: observed(box, running), Probed: own}, `
terminate a a0 grace 5s (failed startup probe)
wake 5s`},
		{"of at least two seconds", Input{Pod: wanted(always, "a"), Observed: observed(box, running), Probed: map[string]pod.Probed{"a0": {Failed: &pod.Failed{Why: "x", Grace: new(time.Second)}}}}, `
terminate a a0 grace 2s (x)
wake 2s`},
		{"which counts to its end", Input{Pod: wanted(always, "a"), Observed: observed(box, running), Probed: own, Signalled: map[string]pod.Signals{"a0": asked(5 * time.Second)}}, `
kill a a0 (grace period over)`},
		{"the others stay", Input{Pod: wanted(always, "a", "b"), Observed: observed(box, running, ctr("b", 0, pod.Running)), Probed: bad("FailedPostStartHook")}, `
terminate a a0 grace 30s (FailedPostStartHook)
wake 30s`},
		{"it has not completed, though it ended well", Input{Pod: wanted(onFailure, "a"), Images: ready, Observed: observed(box, ctr("a", 0, pod.Exited, reaped)), Probed: bad("x")}, `
start a attempt 1 back-off 1 (exit code 0)
a waits: ContainerCreating`},
		{"never is never", Input{Pod: wanted(never, "a"), Images: ready, Observed: observed(box, ctr("a", 0, pod.Exited, code(143), reaped)), Probed: bad("x")}, `
remove sandbox s0 (pod completed)
completed`},
		{"a new instance is not the old one", Input{Pod: wanted(always, "a"), Observed: observed(box, ctr("a", 1, pod.Running)), Probed: bad("x")}, ``},
	})
}

func TestPreStop(t *testing.T) {
	box, a := sandbox(0, true), ctr("a", 0, pod.Running, preStop)
	signals := func(s pod.Signals) map[string]pod.Signals { return map[string]pod.Signals{"a0": s} }
	ago := func(s int) time.Time { return now.Add(-time.Duration(s) * time.Second) }
	compare(t, []planCase{
		{"first the hook", Input{Observed: observed(box, a)}, `
run preStop hook of a a0 grace 30s (not wanted)
wake 30s`},
		{"which is given the grace period", Input{Observed: observed(box, a), Signalled: signals(pod.Signals{Asked: ago(10), Hooking: true})}, `
wake 20s`},
		{"run anew by who did not begin it, in what is left", Input{Observed: observed(box, a), Signalled: signals(pod.Signals{Asked: ago(10)})}, `
run preStop hook of a a0 grace 20s (not wanted)
wake 20s`},
		{"a clock that was set back gives no more", Input{Observed: observed(box, a), Signalled: signals(pod.Signals{Asked: ago(-100), Signalled: ago(-100)})}, `
wake 30s`},
		{"a sidecar's too", Input{Observed: observed(box, ctr("a", 0, pod.Running), ctr("s", 0, pod.Running, sidecar(1), preStop)),
			Signalled: map[string]pod.Signals{"a0": asked(10 * time.Second), "s0": {Asked: ago(10)}}}, `
run preStop hook of s s0 grace 20s (not wanted)
wake 20s`},
		{"then the signal, with what is left", Input{Observed: observed(box, a), Signalled: signals(pod.Signals{Asked: ago(10), Hooked: ago(0)})}, `
terminate a a0 grace 20s (not wanted)
wake 20s`},
		{"at least two seconds", Input{Observed: observed(box, a), Signalled: signals(pod.Signals{Asked: ago(29), Hooked: ago(0)})}, `
terminate a a0 grace 2s (not wanted)
wake 2s`},
		{"also when the hook takes too long", Input{Observed: observed(box, a), Signalled: signals(pod.Signals{Asked: ago(30), Hooking: true})}, `
terminate a a0 grace 2s (not wanted)
wake 2s`},
		{"which pass", Input{Observed: observed(box, a), Signalled: signals(pod.Signals{Asked: ago(31), Signalled: ago(1)})}, `
wake 1s`},
		{"and then it is killed", Input{Observed: observed(box, a), Signalled: signals(pod.Signals{Asked: ago(32), Signalled: ago(2)})}, `
kill a a0 (grace period over)`},
		{"not before the grace period is over", Input{Observed: observed(box, a), Signalled: signals(pod.Signals{Asked: ago(20), Hooked: ago(15), Signalled: ago(15)})}, `
wake 10s`},
		{"a manifest's grace of 0 leaves it a second", Input{Observed: observed(box, ctr("a", 0, pod.Running, preStop, grace(0)))}, `
run preStop hook of a a0 grace 1s (not wanted)
wake 1s`},
		{"and then two for the signal", Input{Observed: observed(box, ctr("a", 0, pod.Running, preStop, grace(0))), Signalled: signals(pod.Signals{Asked: ago(1), Hooking: true})}, `
terminate a a0 grace 2s (not wanted)
wake 2s`},
		{"but not when it is to start again", Input{Pod: wanted(v1.RestartPolicyAlways, "a"), Observed: observed(box, ctr("a", 0, pod.Running, preStop, grace(0))), Probed: bad("failed liveness probe")}, `
terminate a a0 grace 2s (failed liveness probe)
wake 2s`},
		{"no grace, no hook", Input{MaxGrace: new(time.Duration), Observed: observed(box, ctr("a", 0, pod.Running, preStop, grace(0)))}, `
kill a a0 (not wanted)`},
		{"none for the dead", Input{Observed: observed(ctr("a", 0, pod.Exited, preStop, reaped))}, `
remove a a0 (not wanted)`},
		{"also when a probe has failed", Input{Pod: wanted(v1.RestartPolicyAlways, "a"), Observed: observed(box, a), Probed: bad("failed liveness probe")}, `
run preStop hook of a a0 grace 30s (failed liveness probe)
wake 30s`},
		{"a sidecar's runs at once, its turn comes later", Input{Observed: observed(box, ctr("a", 0, pod.Running), ctr("s", 0, pod.Running, sidecar(1), preStop))}, `
terminate a a0 grace 30s (not wanted)
run preStop hook of s s0 grace 30s (not wanted)
wake 30s`},
		{"it has run, and the others have not ended", Input{Observed: observed(box, ctr("a", 0, pod.Running), ctr("s", 0, pod.Running, sidecar(1), preStop)),
			Signalled: map[string]pod.Signals{"a0": asked(10 * time.Second), "s0": {Asked: ago(10), Hooked: ago(9)}}}, `
wake 20s`},
		{"its turn", Input{Observed: observed(box, ctr("a", 0, pod.Exited), ctr("s", 0, pod.Running, sidecar(1), preStop)),
			Signalled: map[string]pod.Signals{"a0": asked(10 * time.Second), "s0": {Asked: ago(10), Hooked: ago(9)}}}, `
terminate s s0 grace 20s (not wanted)
wake 20s`},
	})
}

func TestPostStart(t *testing.T) {
	always, box := v1.RestartPolicyAlways, sandbox(0, true)
	starting := map[string]pod.Probed{"a0": {Starting: true}}
	compare(t, []planCase{
		{"the next waits for it", Input{Pod: postStart(wanted(always, "a", "b")), Images: ready, Observed: observed(box)}, `
start a attempt 0 back-off 0 (first start)
a waits: ContainerCreating
b waits: ContainerCreating`},
		{"while it runs", Input{Pod: postStart(wanted(always, "a", "b")), Images: ready, Observed: observed(box, ctr("a", 0, pod.Running)), Probed: starting}, `
b waits: ContainerCreating`},
		{"until it is done", Input{Pod: postStart(wanted(always, "a", "b")), Images: ready, Observed: observed(box, ctr("a", 0, pod.Running))}, `
start b attempt 0 back-off 0 (first start)
b waits: ContainerCreating`},
		{"but not for one that cannot be made", Input{Pod: postStart(wanted(always, "a", "b")), Images: ready, Observed: observed(box),
			Failures: map[string]Failure{"a": {Reason: "CreateContainerError", Message: "no", At: now, Count: 1}}}, `
start b attempt 0 back-off 0 (first start)
wake 1s
a waits: CreateContainerError: no
b waits: ContainerCreating`},
		{"what has run once does not wait again", Input{Pod: postStart(wanted(always, "a", "b")), Images: ready,
			Observed: observed(box, ctr("a", 1, pod.Running), ctr("b", 0, pod.Exited, reaped)), Probed: map[string]pod.Probed{"a1": {Starting: true}}}, `
start b attempt 1 back-off 1 (exit code 0)
b waits: ContainerCreating`},
	})
}

func TestAfter(t *testing.T) {
	always, after := v1.RestartPolicyAlways, []pod.Key{{Namespace: "default", Name: "db-node"}, {Namespace: "default", Name: "job-node"}}
	compare(t, []planCase{
		{"it waits", Input{Pod: wanted(always, "a"), After: after, Observed: observed()}, `
a waits: ContainerCreating
WaitingForPods`},
		{"what runs stays", Input{Pod: wanted(always, "a"), After: after, Observed: observed(sandbox(0, true), ctr("a", 0, pod.Running))}, ``},
		{"and is restarted", Input{Pod: wanted(always, "a"), After: after, Images: ready, Observed: observed(sandbox(0, true), ctr("a", 0, pod.Exited, reaped))}, `
start a attempt 1 back-off 1 (exit code 0)
a waits: ContainerCreating`},
	})
}

func TestHurry(t *testing.T) {
	compare(t, []planCase{
		{"killed at once", Input{MaxGrace: new(time.Duration), Observed: observed(ctr("a", 0, pod.Running, preStop), ctr("s", 0, pod.Running, sidecar(1)))}, `
kill a a0 (not wanted)
kill s s0 (not wanted)`},
		{"whatever it was given before", Input{MaxGrace: new(time.Duration), Observed: observed(ctr("a", 0, pod.Running)), Signalled: map[string]pod.Signals{"a0": asked(time.Second)}}, `
kill a a0 (not wanted)`},
	})
}
