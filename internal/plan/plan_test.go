package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

var now = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

const boot = "boot-1"

// wanted returns a pod with the named containers.
func wanted(policy v1.RestartPolicy, names ...string) *v1.Pod {
	p := &v1.Pod{}
	p.Namespace, p.Name, p.UID = "default", "web-node", "u1"
	p.Spec.RestartPolicy = policy
	for _, n := range names {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: n, Image: "img:1"})
	}
	return p
}

func onceEver(p *v1.Pod) *v1.Pod {
	p.Annotations = map[string]string{AnnotationRunPolicy: RunOnceEver}
	return p
}

func sandbox(attempt int, ready bool) pod.Sandbox {
	return pod.Sandbox{ID: fmt.Sprintf("s%d", attempt), UID: "u1", Attempt: attempt, Ready: ready, CreatedAt: now.Add(time.Duration(attempt) * time.Second)}
}

// ctr returns an instance in sandbox s0, modified by the options.
func ctr(name string, attempt int, state pod.State, options ...func(*pod.Container)) pod.Container {
	c := pod.Container{ID: fmt.Sprintf("%s%d", name, attempt), Name: name, UID: "u1", SandboxID: "s0", Attempt: attempt, Boot: boot,
		State: state, StartedAt: now.Add(-time.Minute), Grace: 30 * time.Second}
	if state == pod.Exited {
		c.FinishedAt = now.Add(-time.Second)
	}
	for _, o := range options {
		o(&c)
	}
	return c
}

func code(n int) func(*pod.Container)            { return func(c *pod.Container) { c.ExitCode = n } }
func step(n int) func(*pod.Container)            { return func(c *pod.Container) { c.Backoff = n } }
func reaped(c *pod.Container)                    { c.Reaped = true }
func uid(u pod.UID) func(*pod.Container)         { return func(c *pod.Container) { c.UID = u } }
func otherBoot(c *pod.Container)                 { c.Boot = "boot-0" }
func grace(d time.Duration) func(*pod.Container) { return func(c *pod.Container) { c.Grace = d } }
func ran(d, ago time.Duration) func(*pod.Container) {
	return func(c *pod.Container) { c.FinishedAt, c.StartedAt = now.Add(-ago), now.Add(-ago-d) }
}

// remembered is an instance that exists only in the checkpoint.
type remembered pod.Container

func observed(things ...any) pod.Observed {
	o := pod.Observed{Key: pod.Key{Namespace: "default", Name: "web-node"}}
	for _, t := range things {
		switch t := t.(type) {
		case remembered:
			o.Remembered = append(o.Remembered, pod.Container(t))
		case pod.Container:
			o.Containers = append(o.Containers, t)
		case pod.Sandbox:
			o.Sandboxes = append(o.Sandboxes, t)
		case pod.UID:
			o.Data = append(o.Data, t)
		}
	}
	o.Sort()
	return o
}

var ready = map[string]Image{"a": {Ready: true}, "b": {Ready: true}}

func TestCompute(t *testing.T) {
	always, never, onFailure := v1.RestartPolicyAlways, v1.RestartPolicyNever, v1.RestartPolicyOnFailure
	data := pod.UID("u1")
	compare(t, []planCase{
		{"first images and a sandbox", Input{Pod: wanted(always, "a"), Observed: observed()}, `
ensure image of a
create sandbox attempt 0
a waits: ContainerCreating`},
		{"an image that is not there yet", Input{Pod: wanted(always, "a"), Observed: observed(sandbox(0, true), data)}, `
ensure image of a
a waits: ContainerCreating`},
		{"a pull under way is waited for", Input{Pod: wanted(always, "a"), Observed: observed(sandbox(0, true), data), Images: map[string]Image{"a": {Pulling: true}}}, `
a waits: ContainerCreating: pulling image "img:1"`},
		{"a pull tells how far it is", Input{Pod: wanted(always, "a"), Observed: observed(sandbox(0, true), data), Images: map[string]Image{"a": {Pulling: true, Progress: "1.0MB of 2.0MB"}}}, `
a waits: ContainerCreating: pulling image "img:1": 1.0MB of 2.0MB`},
		{"a pull that was to no avail before waits with what was wrong until something comes", Input{Pod: wanted(always, "a"), Observed: observed(sandbox(0, true), data), Images: map[string]Image{"a": {Pulling: true}}, Failures: map[string]Failure{"a": {Reason: ReasonErrImagePull, Message: "no route", At: now.Add(-time.Hour), Count: 1}}}, `
a waits: ErrImagePull: no route`},
		{"then the containers", Input{Pod: wanted(always, "a", "b"), Observed: observed(sandbox(0, true), data), Images: ready}, `
start a attempt 0 back-off 0 (first start)
start b attempt 0 back-off 0 (first start)
a waits: ContainerCreating
b waits: ContainerCreating`},
		{"all well", Input{Pod: wanted(always, "a"), Observed: observed(sandbox(0, true), data, ctr("a", 0, pod.Running))}, ``},
		{"a first death is mended at once", Input{Pod: wanted(always, "a", "b"), Images: ready,
			Observed: observed(sandbox(0, true), ctr("a", 0, pod.Exited, code(137)), ctr("b", 0, pod.Running))}, `
start a attempt 1 back-off 1 (exit code 137)
a waits: ContainerCreating`},
		{"a second one waits", Input{Pod: wanted(always, "a"), Images: ready,
			Observed: observed(sandbox(0, true), ctr("a", 1, pod.Exited, step(1), reaped))}, `
wake 9s
a waits: CrashLoopBackOff`},
		{"the wait doubles", Input{Pod: wanted(always, "a"), Images: ready,
			Observed: observed(sandbox(0, true), ctr("a", 4, pod.Exited, step(4), reaped))}, `
wake 1m19s
a waits: CrashLoopBackOff`},
		{"up to five minutes", Input{Pod: wanted(always, "a"), Images: ready,
			Observed: observed(sandbox(0, true), ctr("a", 40, pod.Exited, step(40), reaped))}, `
wake 4m59s
a waits: CrashLoopBackOff`},
		{"or what the flag says", Input{Pod: wanted(always, "a"), Images: ready, MaxBackoff: 15 * time.Second,
			Observed: observed(sandbox(0, true), ctr("a", 40, pod.Exited, step(40), reaped, ran(time.Second, time.Second)))}, `
wake 14s
a waits: CrashLoopBackOff`},
		{"after the wait", Input{Pod: wanted(always, "a"), Images: ready,
			Observed: observed(sandbox(0, true), ctr("a", 1, pod.Exited, step(1), reaped, ran(time.Second, 10*time.Second)))}, `
start a attempt 2 back-off 2 (exit code 0)
a waits: ContainerCreating`},
		{"a long run resets the back-off", Input{Pod: wanted(always, "a"), Images: ready,
			Observed: observed(sandbox(0, true), ctr("a", 7, pod.Exited, step(7), reaped, ran(10*time.Minute, time.Second)))}, `
start a attempt 8 back-off 1 (exit code 0)
a waits: ContainerCreating`},
		{"whatever the flag says", Input{Pod: wanted(always, "a"), Images: ready, MaxBackoff: 15 * time.Second,
			Observed: observed(sandbox(0, true), ctr("a", 7, pod.Exited, step(7), reaped, ran(10*time.Minute-time.Second, time.Second)))}, `
wake 14s
a waits: CrashLoopBackOff`},
		{"which is the longest wait only", Input{Pod: wanted(always, "a"), Images: ready, MaxBackoff: 15 * time.Second,
			Observed: observed(sandbox(0, true), ctr("a", 7, pod.Exited, step(7), reaped, ran(10*time.Minute, time.Second)))}, `
start a attempt 8 back-off 1 (exit code 0)
a waits: ContainerCreating`},
		{"also when that is shorter than the first", Input{Pod: wanted(always, "a"), Images: ready, MaxBackoff: 2 * time.Second,
			Observed: observed(sandbox(0, true), ctr("a", 1, pod.Exited, step(1), reaped, ran(time.Minute, time.Second)))}, `
wake 1s
a waits: CrashLoopBackOff`},
		{"a clock set back does not stretch it", Input{Pod: wanted(always, "a"), Images: ready,
			Observed: observed(sandbox(0, true), ctr("a", 1, pod.Exited, step(1), reaped, ran(time.Second, -24*time.Hour)))}, `
wake 10s
a waits: CrashLoopBackOff`},
		{"only the last ended instance stays", Input{Pod: wanted(always, "a"),
			Observed: observed(sandbox(0, true), ctr("a", 0, pod.Exited, reaped), ctr("a", 1, pod.Exited), ctr("a", 2, pod.Running))}, `
reap a a1
remove a a0 (superseded)`},
		{"a start that was cut off", Input{Pod: wanted(always, "a"), Images: ready, Observed: observed(sandbox(0, true), ctr("a", 0, pod.Created))}, `
start a attempt 0 back-off 0 (start was interrupted)
a waits: ContainerCreating`},
		{"OnFailure: zero is the end", Input{Pod: wanted(onFailure, "a"), Observed: observed(sandbox(0, true), data, ctr("a", 0, pod.Exited))}, `
reap a a0
remove sandbox s0 (pod completed)
completed`},
		{"OnFailure: anything else is not", Input{Pod: wanted(onFailure, "a"), Images: ready, Observed: observed(sandbox(0, true), ctr("a", 0, pod.Exited, code(3), reaped))}, `
start a attempt 1 back-off 1 (exit code 3)
a waits: ContainerCreating`},
		{"Never: one ended, one runs", Input{Pod: wanted(never, "a", "b"), Observed: observed(sandbox(0, true), ctr("a", 0, pod.Exited, code(1), reaped), ctr("b", 0, pod.Running))}, ``},
		{"completed stays completed", Input{Pod: wanted(never, "a"), Observed: observed(data, ctr("a", 0, pod.Exited, code(1), reaped))}, `
completed`},
		{"once runs it again", Input{Pod: wanted(never, "a"), Earlier: true, Observed: observed(data, ctr("a", 0, pod.Exited, code(1), reaped))}, `
remove data of u1
remove a a0 (pod starts again)
a waits: ContainerCreating
again`},
		{"once adopts what runs", Input{Pod: wanted(never, "a"), Earlier: true, Observed: observed(sandbox(0, true), data, ctr("a", 0, pod.Running))}, ``},
		{"a reboot runs a job again", Input{Pod: wanted(never, "a"), Observed: observed(data, ctr("a", 0, pod.Exited, otherBoot, reaped))}, `
remove data of u1
remove a a0 (pod starts again)
a waits: ContainerCreating
again`},
		{"a reboot restarts a service", Input{Pod: wanted(always, "a"), Images: ready, Observed: observed(sandbox(1, true), data, ctr("a", 5, pod.Exited, step(5), otherBoot, reaped))}, `
start a attempt 6 back-off 0 (machine was restarted)
a waits: ContainerCreating`},
		{"a sandbox was lost", Input{Pod: wanted(always, "a"), Observed: observed(sandbox(0, false), ctr("a", 0, pod.Running))}, `
terminate a a0 grace 30s (sandbox lost)
wake 30s
a waits: ContainerCreating`},
		{"and is made anew", Input{Pod: wanted(always, "a"), Observed: observed(sandbox(0, false), ctr("a", 0, pod.Exited))}, `
remove sandbox s0 (not ready)
ensure image of a
create sandbox attempt 1
a waits: ContainerCreating`},
		{"a sandbox that failed waits", Input{Pod: wanted(always, "a"), Observed: observed(), Failures: map[string]Failure{"": {Reason: ReasonFailedSandbox, At: now, Count: 3, Message: "no bridge"}}}, `
wake 4s
a waits: ContainerCreating: no bridge`},
		{"a sandbox that waits for a port", Input{Pod: wanted(always, "a"), Observed: observed(), Failures: map[string]Failure{"": {Reason: "HostPortConflict", At: now, Count: 9, Message: "80/TCP is taken"}}}, `
wake 10s
a waits: HostPortConflict: 80/TCP is taken`},
		{"a pull that failed waits", Input{Pod: wanted(always, "a"), Observed: observed(sandbox(0, true)), Failures: map[string]Failure{"a": {Reason: "ErrImagePull", At: now, Count: 2, Message: "no such host"}}}, `
wake 20s
a waits: ImagePullBackOff: Back-off pulling image "img:1": ErrImagePull: no such host`},
		{"an old revision is stopped first", Input{Pod: wanted(always, "a"), Observed: observed(ctr("a", 0, pod.Running, uid("u0")))}, `
terminate a a0 grace 30s (manifest changed)
wake 30s
a waits: ContainerCreating`},
		{"and given its grace", Input{Pod: wanted(always, "a"), Observed: observed(ctr("a", 0, pod.Running, uid("u0"))), Signalled: map[string]pod.Signals{"a0": asked(10 * time.Second)}}, `
wake 20s
a waits: ContainerCreating`},
		{"who may not have been told is told again, in what is left", Input{Pod: wanted(always, "a"), Observed: observed(ctr("a", 0, pod.Running, uid("u0"))), Signalled: map[string]pod.Signals{"a0": {Asked: now.Add(-10 * time.Second)}}}, `
terminate a a0 grace 20s (manifest changed)
wake 20s
a waits: ContainerCreating`},
		{"at least two seconds", Input{Observed: observed(ctr("a", 0, pod.Running)), Signalled: map[string]pod.Signals{"a0": {Asked: now.Add(-time.Hour)}}}, `
terminate a a0 grace 2s (not wanted)
wake 2s`},
		{"whatever its manifest asks for", Input{Observed: observed(ctr("a", 0, pod.Running, grace(time.Second))), Signalled: map[string]pod.Signals{"a0": {Asked: now.Add(-time.Hour)}}}, `
terminate a a0 grace 2s (not wanted)
wake 2s`},
		{"and which pass", Input{Observed: observed(ctr("a", 0, pod.Running)), Signalled: map[string]pod.Signals{"a0": {Asked: now.Add(-time.Hour), Signalled: now.Add(-time.Second)}}}, `
wake 1s`},
		{"and then killed", Input{Pod: wanted(always, "a"), Observed: observed(ctr("a", 0, pod.Running, uid("u0"))), Signalled: map[string]pod.Signals{"a0": asked(30 * time.Second)}}, `
kill a a0 (grace period over)
a waits: ContainerCreating`},
		{"a manifest's grace of 0 is asked too", Input{Observed: observed(ctr("a", 0, pod.Running, grace(0)))}, `
terminate a a0 grace 2s (not wanted)
wake 2s`},
		{"not killed before two seconds", Input{Observed: observed(ctr("a", 0, pod.Running, grace(0))), Signalled: map[string]pod.Signals{"a0": asked(time.Second)}}, `
wake 1s`},
		{"but then", Input{Observed: observed(ctr("a", 0, pod.Running, grace(0))), Signalled: map[string]pod.Signals{"a0": asked(2 * time.Second)}}, `
kill a a0 (grace period over)`},
		{"an edit too", Input{Pod: wanted(always, "a"), Observed: observed(ctr("a", 0, pod.Running, uid("u0"), grace(0)))}, `
terminate a a0 grace 2s (manifest changed)
wake 2s
a waits: ContainerCreating`},
		{"a kill is not repeated at once", Input{Observed: observed(ctr("a", 0, pod.Running)), Signalled: map[string]pod.Signals{"a0": {Asked: now.Add(-40 * time.Second), Killed: now.Add(-time.Second)}}}, `
wake 4s`},
		{"what is old is cleared away last", Input{Pod: wanted(always, "a"), Images: ready, Observed: observed(sandbox(0, true), pod.UID("u0"), ctr("a", 0, pod.Exited, uid("u0")))}, `
start a attempt 0 back-off 0 (first start)
a waits: ContainerCreating`},
		{"when the new one runs", Input{Pod: wanted(always, "a"), Observed: observed(sandbox(0, true), pod.UID("u0"), ctr("a", 0, pod.Running), ctr("a", 1, pod.Exited, uid("u0")))}, `
reap a a1
remove data of u0
remove a a1 (manifest changed)`},
		{"the same UID for another manifest", Input{Pod: wanted(always, "a"), Replaced: true, Observed: observed(sandbox(0, true), data, ctr("a", 0, pod.Running))}, `
terminate a a0 grace 30s (pod starts again)
wake 30s
a waits: ContainerCreating
again`},
		{"not wanted: gone at last", Input{Observed: observed()}, `
gone`},
		{"not wanted: cleared away", Input{Observed: observed(sandbox(0, true), data, ctr("a", 0, pod.Exited, reaped))}, `
remove sandbox s0 (not wanted)
remove data of u1
remove a a0 (not wanted)`},
		{"a removed container's number is not given again", Input{Pod: wanted(always, "a"), Images: ready,
			Observed: observed(sandbox(0, true), data, remembered(ctr("a", 3, pod.Running, step(2))))}, `
start a attempt 4 back-off 3 (container was removed)
a waits: ContainerCreating`},
		{"nor when an older one is left", Input{Pod: wanted(always, "a"), Images: ready,
			Observed: observed(sandbox(0, true), data, ctr("a", 2, pod.Exited, reaped), remembered(ctr("a", 3, pod.Running)))}, `
start a attempt 4 back-off 1 (container was removed)
a waits: ContainerCreating`},
		{"a removed container's back-off goes on", Input{Pod: wanted(always, "a"), Images: ready,
			Observed: observed(sandbox(0, true), data, remembered(ctr("a", 3, pod.Exited, step(1))))}, `
wake 9s
a waits: CrashLoopBackOff`},
		{"removed in an earlier boot", Input{Pod: wanted(always, "a"), Images: ready,
			Observed: observed(sandbox(0, true), data, remembered(ctr("a", 3, pod.Running, step(2), otherBoot)))}, `
start a attempt 4 back-off 0 (container was removed)
a waits: ContainerCreating`},
		{"what is there counts, not what was noted of it", Input{Pod: wanted(always, "a"), Images: ready,
			Observed: observed(sandbox(0, true), data, ctr("a", 3, pod.Running), remembered(ctr("a", 3, pod.Exited)))}, ``},
		{"completed, its container removed", Input{Pod: wanted(onFailure, "a"), Observed: observed(data, remembered(ctr("a", 1, pod.Exited)))}, `
completed`},
		{"completed, one of its containers removed", Input{Pod: wanted(never, "a", "b"),
			Observed: observed(data, ctr("a", 0, pod.Exited, reaped), remembered(ctr("a", 0, pod.Exited)), remembered(ctr("b", 0, pod.Exited, code(1))))}, `
completed`},
		{"once runs that again, too", Input{Pod: wanted(never, "a"), Earlier: true, Observed: observed(data, remembered(ctr("a", 0, pod.Exited)))}, `
remove data of u1
a waits: ContainerCreating
again`},
		{"as a reboot does", Input{Pod: wanted(never, "a"), Observed: observed(data, remembered(ctr("a", 0, pod.Exited, otherBoot)))}, `
remove data of u1
a waits: ContainerCreating
again`},
		{"but for once-ever", Input{Pod: onceEver(wanted(never, "a")), Observed: observed(data, remembered(ctr("a", 0, pod.Exited, otherBoot)))}, `
completed`},
		{"nothing is concluded from what cannot be told", Input{Pod: wanted(always, "a"), Observed: observed(sandbox(0, true), ctr("a", 0, pod.Unknown))}, ``},
	})
}

// planCase is an input and its plan, with one line for each action.
type planCase struct {
	name string
	in   Input
	want string
}

func compare(t *testing.T, tests []planCase) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.in.Now, tt.in.Boot = now, boot
			if got := text(Compute(tt.in), tt.in.Pod); got != strings.TrimSpace(tt.want) {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// text formats a plan line by line.
func text(p Plan, want *v1.Pod) string {
	var lines []string
	for _, a := range p.Actions {
		lines = append(lines, a.String())
	}
	if p.Wake > 0 {
		lines = append(lines, "wake "+p.Wake.String())
	}
	if want != nil {
		for _, c := range pod.AllContainers(want) {
			if w, ok := p.Waiting[c.Name]; ok {
				line := c.Name + " waits: " + w.Reason
				if w.Message != "" && w.Reason != "CrashLoopBackOff" {
					line += ": " + w.Message
				}
				lines = append(lines, line)
			}
		}
	}
	for name, is := range map[string]bool{"again": p.Again, "completed": p.Completed, "gone": p.Gone} {
		if is {
			lines = append(lines, name)
		}
	}
	if p.Failure != nil {
		lines = append(lines, p.Failure.Reason)
	}
	told := func(what string, w *Waiting) {
		if w != nil {
			lines = append(lines, strings.TrimSuffix(strings.TrimSuffix(what+": "+w.Reason+": "+w.Message, ": "), ": "))
		}
	}
	told("resize pending", p.ResizePending)
	told("resizing", p.Resizing)
	return strings.Join(lines, "\n")
}

func TestCrashLoopMessage(t *testing.T) {
	p := Compute(Input{Pod: wanted(v1.RestartPolicyAlways, "c"), Now: now, Boot: boot, Observed: observed(sandbox(0, true), ctr("c", 1, pod.Exited, step(1), reaped))})
	const want = "back-off 10s restarting failed container=c pod=web-node_default(u1)"
	if got := p.Waiting["c"].Message; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestLostIsReapedFirst: an instance whose exit nobody observed may still run, so it is reaped
// before another one takes its place.
func TestLostIsReapedFirst(t *testing.T) {
	lost := func(c *pod.Container) { c.ExitCode, c.Reason = 255, pod.ReasonLost }
	earlier := func(c *pod.Container) { c.Boot = "another" }
	p := func() *v1.Pod { return wanted(v1.RestartPolicyAlways, "a") }
	compare(t, []planCase{
		{"in this boot", Input{Pod: p(), Images: allReady, Observed: observed(sandbox(0, true), ctr("a", 0, pod.Exited, lost))}, `
reap a a0`},
		{"it is replaced when it is reaped", Input{Pod: p(), Images: allReady, Observed: observed(sandbox(0, true), ctr("a", 0, pod.Exited, lost, reaped))}, `
start a attempt 1 back-off 1 (exit code 255)
a waits: ContainerCreating`},
		{"nothing outlives a boot", Input{Pod: p(), Images: allReady, Observed: observed(sandbox(0, true), ctr("a", 0, pod.Exited, lost, earlier))}, `
start a attempt 1 back-off 0 (machine was restarted)
a waits: ContainerCreating`},
	})
}
