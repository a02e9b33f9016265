package plan

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/pod"
)

// withInit adds init containers to a pod; a name in upper case makes a sidecar.
func withInit(p *v1.Pod, names ...string) *v1.Pod {
	for _, n := range names {
		c := v1.Container{Name: strings.ToLower(n), Image: "img:1"}
		if n != c.Name {
			c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	return p
}

func startup(p *v1.Pod, init int) *v1.Pod {
	p.Spec.InitContainers[init].StartupProbe = &v1.Probe{}
	return p
}

func sidecar(order int) func(*pod.Container) { return func(c *pod.Container) { c.Sidecar = order } }
func asked(ago time.Duration) pod.Signals {
	return pod.Signals{Asked: now.Add(-ago), Signalled: now.Add(-ago)}
}
func succeeded(name string) pod.Container { return ctr(name, 0, pod.Exited, reaped) }
func failed(name string, n int) pod.Container {
	return ctr(name, n, pod.Exited, code(1), step(n), reaped)
}

var allReady = map[string]Image{"a": {Ready: true}, "b": {Ready: true}, "i": {Ready: true}, "j": {Ready: true}, "s": {Ready: true}, "t": {Ready: true}}

func TestInit(t *testing.T) {
	always, never, onFailure := v1.RestartPolicyAlways, v1.RestartPolicyNever, v1.RestartPolicyOnFailure
	box := sandbox(0, true)
	compare(t, []planCase{
		{"all images come with the sandbox", Input{Pod: withInit(wanted(always, "a"), "i"), Observed: observed()}, `
ensure image of i
ensure image of a
create sandbox attempt 0
i waits: PodInitializing
a waits: PodInitializing`},
		{"the first runs first", Input{Pod: withInit(wanted(always, "a"), "i", "j"), Images: allReady, Observed: observed(box)}, `
start i attempt 0 back-off 0 (first start)
i waits: PodInitializing
j waits: PodInitializing
a waits: PodInitializing`},
		{"the others wait for it", Input{Pod: withInit(wanted(always, "a"), "i", "j"), Images: allReady, Observed: observed(box, ctr("i", 0, pod.Running))}, `
j waits: PodInitializing
a waits: PodInitializing`},
		{"then the next", Input{Pod: withInit(wanted(always, "a"), "i", "j"), Images: allReady, Observed: observed(box, succeeded("i"))}, `
start j attempt 0 back-off 0 (first start)
j waits: PodInitializing
a waits: PodInitializing`},
		{"then the pod's own", Input{Pod: withInit(wanted(always, "a"), "i", "j"), Images: allReady, Observed: observed(box, succeeded("i"), succeeded("j"))}, `
start a attempt 0 back-off 0 (first start)
a waits: PodInitializing`},
		{"one that fails is tried again", Input{Pod: withInit(wanted(always, "a"), "i"), Images: allReady, Observed: observed(box, failed("i", 0))}, `
start i attempt 1 back-off 1 (exit code 1)
i waits: PodInitializing
a waits: PodInitializing`},
		{"and then waits", Input{Pod: withInit(wanted(onFailure, "a"), "i"), Images: allReady, Observed: observed(box, failed("i", 1))}, `
wake 9s
i waits: CrashLoopBackOff
a waits: PodInitializing`},
		{"Never: one that fails is the end", Input{Pod: withInit(wanted(never, "a"), "i"), Images: allReady, Observed: observed(box, failed("i", 0))}, `
remove sandbox s0 (pod completed)
completed`},
		{"a policy of its own", Input{Pod: initPolicy(withInit(wanted(always, "a"), "i"), v1.ContainerRestartPolicyNever), Images: allReady, Observed: observed(box, failed("i", 0))}, `
remove sandbox s0 (pod completed)
completed`},
		{"a start that was cut off", Input{Pod: withInit(wanted(always, "a"), "i", "j"), Images: allReady, Observed: observed(box, succeeded("i"), ctr("j", 0, pod.Created))}, `
start j attempt 0 back-off 0 (start was interrupted)
j waits: PodInitializing
a waits: PodInitializing`},
		{"not again when another container restarts", Input{Pod: withInit(wanted(always, "a"), "i"), Images: allReady, Observed: observed(box, succeeded("i"), ctr("a", 0, pod.Exited, reaped))}, `
start a attempt 1 back-off 1 (exit code 0)
a waits: PodInitializing`},
		{"nor when their traces are gone", Input{Pod: withInit(wanted(always, "a"), "i"), Images: allReady, Observed: observed(box, ctr("a", 0, pod.Running))}, ``},
		{"only the last one's traces count", Input{Pod: withInit(wanted(always, "a"), "i", "j"), Images: allReady, Observed: observed(box, succeeded("j"))}, `
start a attempt 0 back-off 0 (first start)
a waits: PodInitializing`},
		{"removed, but noted down", Input{Pod: withInit(wanted(always, "a"), "i"), Images: allReady, Observed: observed(box, pod.UID("u1"), remembered(succeeded("i")))}, `
start a attempt 0 back-off 0 (first start)
a waits: PodInitializing`},
		{"again in a new sandbox", Input{Pod: withInit(wanted(always, "a"), "i"), Images: allReady,
			Observed: observed(sandbox(1, true), ctr("i", 3, pod.Exited, reaped), ctr("a", 0, pod.Exited, code(137), reaped))}, `
start i attempt 4 back-off 0 (new sandbox)
i waits: PodInitializing
a waits: PodInitializing`},
		{"not beside what lives in the old one", Input{Pod: withInit(wanted(always, "a"), "i"), Images: allReady,
			Observed: observed(sandbox(1, true), succeeded("i"), ctr("a", 0, pod.Running))}, `
terminate a a0 grace 30s (sandbox replaced)
wake 30s`},
		{"after a reboot at once", Input{Pod: withInit(wanted(always, "a"), "i"), Images: allReady,
			Observed: observed(sandbox(1, true), ctr("i", 5, pod.Exited, code(1), step(5), otherBoot, reaped))}, `
start i attempt 6 back-off 0 (machine was restarted)
i waits: PodInitializing
a waits: PodInitializing`},
		{"a job that a reboot cut off in them runs again whole", Input{Pod: withInit(wanted(never, "a"), "i"),
			Observed: observed(pod.UID("u1"), remembered(ctr("i", 0, pod.Exited, otherBoot)))}, `
remove data of u1
i waits: PodInitializing
a waits: PodInitializing
again`},
	})
}

func initPolicy(p *v1.Pod, policy v1.ContainerRestartPolicy) *v1.Pod {
	p.Spec.InitContainers[0].RestartPolicy = &policy
	return p
}

func TestSidecars(t *testing.T) {
	always, never := v1.RestartPolicyAlways, v1.RestartPolicyNever
	box := sandbox(0, true)
	s, u := ctr("s", 0, pod.Running, sidecar(1)), ctr("t", 0, pod.Running, sidecar(2))
	compare(t, []planCase{
		{"it runs beside the next", Input{Pod: withInit(wanted(always, "a"), "S", "i"), Images: allReady, Observed: observed(box, s)}, `
start i attempt 0 back-off 0 (first start)
i waits: PodInitializing
a waits: PodInitializing`},
		{"the next waits until it has started up", Input{Pod: startup(withInit(wanted(always, "a"), "S", "i"), 0), Images: allReady, Observed: observed(box, s)}, `
i waits: PodInitializing
a waits: PodInitializing`},
		{"which its probe says", Input{Pod: startup(withInit(wanted(always, "a"), "S"), 0), Images: allReady, Observed: observed(box, s),
			Probed: map[string]pod.Probed{"s0": {Started: new(true)}}}, `
start a attempt 0 back-off 0 (first start)
a waits: PodInitializing`},
		{"one that died before the next ran", Input{Pod: withInit(wanted(always, "a"), "S"), Images: allReady, Observed: observed(box, ctr("s", 1, pod.Exited, sidecar(1), step(1), reaped))}, `
wake 9s
s waits: CrashLoopBackOff
a waits: PodInitializing`},
		{"one that died holds up nobody who came after", Input{Pod: withInit(wanted(always, "a"), "S", "i", "j"), Images: allReady,
			Observed: observed(box, ctr("s", 1, pod.Exited, sidecar(1), step(1), reaped), succeeded("i"))}, `
start j attempt 0 back-off 0 (first start)
wake 9s
s waits: CrashLoopBackOff
j waits: PodInitializing
a waits: PodInitializing`},
		{"it restarts by itself, under Never too", Input{Pod: withInit(wanted(never, "a"), "S"), Images: allReady,
			Observed: observed(box, ctr("s", 0, pod.Exited, sidecar(1), reaped), ctr("a", 0, pod.Running))}, `
start s attempt 1 back-off 1 (exit code 0)
s waits: PodInitializing`},
		{"it ends when the others have", Input{Pod: withInit(wanted(never, "a"), "S"), Observed: observed(box, s, ctr("a", 0, pod.Exited, reaped))}, `
terminate s s0 grace 30s (pod completed)
wake 30s`},
		{"and is not started then", Input{Pod: withInit(wanted(never, "a"), "S"), Images: allReady,
			Observed: observed(box, ctr("s", 0, pod.Exited, sidecar(1), code(143), reaped), ctr("a", 0, pod.Exited, reaped))}, `
remove sandbox s0 (pod completed)
completed`},
		{"it ends when an init container failed", Input{Pod: withInit(wanted(never, "a"), "S", "i"), Images: allReady, Observed: observed(box, s, failed("i", 0))}, `
terminate s s0 grace 30s (initialization failed)
wake 30s`},
		{"once runs again what had ended but for it", Input{Pod: withInit(wanted(never, "a"), "S"), Earlier: true, Observed: observed(box, s, ctr("a", 0, pod.Exited, reaped))}, `
terminate s s0 grace 30s (pod starts again)
wake 30s
s waits: PodInitializing
a waits: PodInitializing
again`},
		{"the others end first", Input{Observed: observed(box, s, u, ctr("a", 0, pod.Running))}, `
terminate a a0 grace 30s (not wanted)
wake 30s`},
		{"it waits for them", Input{Observed: observed(box, s, u, ctr("a", 0, pod.Running)), Signalled: map[string]pod.Signals{"a0": asked(10 * time.Second)}}, `
wake 20s`},
		{"the last one ends first, with the grace that is left", Input{Observed: observed(box, s, u, ctr("a", 0, pod.Exited)), Signalled: map[string]pod.Signals{"a0": asked(10 * time.Second)}}, `
terminate t t0 grace 20s (not wanted)
wake 20s`},
		{"then the one before it", Input{Observed: observed(box, s, ctr("t", 0, pod.Exited, sidecar(2)), ctr("a", 0, pod.Exited)),
			Signalled: map[string]pod.Signals{"a0": asked(25 * time.Second), "t0": asked(15 * time.Second)}}, `
terminate s s0 grace 5s (not wanted)
wake 5s`},
		{"what was ended before for a reason of its own has no part in it", Input{Observed: observed(box, s, ctr("a", 0, pod.Exited), ctr("a", 1, pod.Exited)),
			Signalled: map[string]pod.Signals{"a0": asked(25 * time.Second)}}, `
terminate s s0 grace 30s (not wanted)
wake 30s`},
		{"killed when the pod's grace is over", Input{Observed: observed(box, ctr("t", 0, pod.Running, sidecar(2)), ctr("a", 0, pod.Exited)),
			Signalled: map[string]pod.Signals{"a0": asked(30 * time.Second), "t0": asked(20 * time.Second)}}, `
kill t t0 (grace period over)`},
		{"no turn is waited for longer than the grace", Input{Observed: observed(box, s, u, ctr("a", 0, pod.Running)), Signalled: map[string]pod.Signals{"a0": asked(30 * time.Second)}}, `
kill a a0 (grace period over)
terminate s s0 grace 2s (not wanted)
terminate t t0 grace 2s (not wanted)
wake 2s`},
		{"a manifest's grace of 0 has an order", Input{Observed: observed(box, ctr("s", 0, pod.Running, sidecar(1), grace(0)), ctr("a", 0, pod.Running, grace(0)))}, `
terminate a a0 grace 2s (not wanted)
wake 2s`},
		{"of one second", Input{Observed: observed(box, ctr("s", 0, pod.Running, sidecar(1), grace(0)), ctr("a", 0, pod.Running, grace(0))),
			Signalled: map[string]pod.Signals{"a0": asked(time.Second)}}, `
terminate s s0 grace 2s (not wanted)
wake 1s`},
		{"init containers end before it", Input{Observed: observed(box, s, ctr("i", 0, pod.Running))}, `
terminate i i0 grace 30s (not wanted)
wake 30s`},
		{"asked to end, and wanted again", Input{Pod: wanted(always, "a"), Observed: observed(box, ctr("a", 0, pod.Running)), Signalled: map[string]pod.Signals{"a0": asked(10 * time.Second)}}, `
wake 20s`},
	})
}

func TestRestartRules(t *testing.T) {
	never := v1.ContainerRestartPolicyNever
	rule := func(op v1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) v1.ContainerRestartRule {
		return v1.ContainerRestartRule{Action: v1.ContainerRestartRuleActionRestart, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes}}
	}
	const in, notIn = v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn
	for _, tt := range []struct {
		name   string
		pod    v1.RestartPolicy
		own    *v1.ContainerRestartPolicy
		rules  []v1.ContainerRestartRule
		code   int
		expect bool
	}{
		{"the pod's policy", v1.RestartPolicyOnFailure, nil, nil, 1, true},
		{"its own comes first", v1.RestartPolicyAlways, &never, nil, 1, false},
		{"own OnFailure", v1.RestartPolicyNever, new(v1.ContainerRestartPolicyOnFailure), nil, 1, true},
		{"own OnFailure, succeeded", v1.RestartPolicyAlways, new(v1.ContainerRestartPolicyOnFailure), nil, 0, false},
		{"own Always", v1.RestartPolicyNever, new(v1.ContainerRestartPolicyAlways), nil, 0, true},
		{"a rule comes before that", v1.RestartPolicyNever, &never, []v1.ContainerRestartRule{rule(in, 42)}, 42, true},
		{"a rule that does not match", v1.RestartPolicyNever, &never, []v1.ContainerRestartRule{rule(in, 42)}, 1, false},
		{"the second rule", v1.RestartPolicyNever, &never, []v1.ContainerRestartRule{rule(in, 42), rule(in, 1, 2)}, 2, true},
		{"NotIn", v1.RestartPolicyNever, &never, []v1.ContainerRestartRule{rule(notIn, 0, 1)}, 2, true},
		{"NotIn, listed", v1.RestartPolicyNever, &never, []v1.ContainerRestartRule{rule(notIn, 0, 1)}, 1, false},
	} {
		p := wanted(tt.pod, "a")
		c := &p.Spec.Containers[0]
		c.RestartPolicy, c.RestartPolicyRules = tt.own, tt.rules
		if got := ShouldRestart(p, c, tt.code); got != tt.expect {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

func TestDeadline(t *testing.T) {
	always, never := v1.RestartPolicyAlways, v1.RestartPolicyNever
	box := sandbox(0, true)
	limit := func(p *v1.Pod, seconds int64) *v1.Pod {
		p.Spec.ActiveDeadlineSeconds = &seconds
		return p
	}
	since := now.Add(-time.Minute)
	compare(t, []planCase{
		{"not yet", Input{Pod: limit(wanted(always, "a"), 70), Since: since, Observed: observed(box, ctr("a", 0, pod.Running))}, `
wake 10s`},
		{"not begun", Input{Pod: limit(wanted(always, "a"), 70), Images: ready, Observed: observed()}, `
create sandbox attempt 0
a waits: ContainerCreating`},
		{"passed", Input{Pod: limit(wanted(always, "a"), 60), Since: since, Observed: observed(box, ctr("a", 0, pod.Running))}, `
terminate a a0 grace 30s (deadline exceeded)
wake 30s
DeadlineExceeded`},
		{"nothing starts then", Input{Pod: limit(wanted(always, "a"), 60), Since: since, Images: ready, Observed: observed(box, ctr("a", 0, pod.Exited, code(143), reaped))}, `
remove sandbox s0 (pod completed)
completed
DeadlineExceeded`},
		{"nor what has not yet", Input{Pod: limit(withInit(wanted(always, "a"), "i"), 60), Since: since, Observed: observed(box, failed("i", 1))}, `
remove sandbox s0 (pod completed)
completed
DeadlineExceeded`},
		{"it succeeded when it was told to end", Input{Pod: limit(wanted(never, "a"), 59), Since: since, Observed: observed(ctr("a", 0, pod.Exited, reaped, ran(time.Second, 500*time.Millisecond)))}, `
completed
DeadlineExceeded`},
		{"it had ended before", Input{Pod: limit(wanted(never, "a"), 50), Since: since, Observed: observed(ctr("a", 0, pod.Exited, reaped, ran(time.Second, 20*time.Second)))}, `
completed`},
		{"once runs it again", Input{Pod: limit(wanted(always, "a"), 50), Since: since, Earlier: true, Observed: observed(pod.UID("u1"), ctr("a", 0, pod.Exited, reaped))}, `
remove data of u1
remove a a0 (pod starts again)
a waits: ContainerCreating
again`},
		{"but says first that one still running is late", Input{Pod: limit(wanted(always, "a"), 50), Since: since, Earlier: true, Observed: observed(box, pod.UID("u1"), ctr("a", 0, pod.Running))}, `
terminate a a0 grace 30s (deadline exceeded)
wake 30s
DeadlineExceeded`},
		{"so does a reboot", Input{Pod: limit(wanted(always, "a"), 50), Since: since, Observed: observed(pod.UID("u1"), ctr("a", 0, pod.Exited, reaped, otherBoot))}, `
remove data of u1
remove a a0 (pod starts again)
a waits: ContainerCreating
again`},
	})
}

func TestLacking(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	}
	for _, tt := range []struct {
		wanted, used v1.ResourceList
		lacks, says  string
	}{
		{list("1", "1Gi"), nil, "", ""},
		{list("1500m", "1Gi"), list("501m", "0"), "OutOfcpu", "Node didn't have enough resource: cpu, requested: 1500, used: 501, capacity: 2000"},
		{list("3", "3Gi"), nil, "OutOfcpu", "Node didn't have enough resource: cpu, requested: 3000, used: 0, capacity: 2000"},
		{list("1", "1Ki"), list("1", "1Gi"), "OutOfmemory", "Node didn't have enough resource: memory, requested: 1024, used: 1073741824, capacity: 1073741824"},
		{list("0", "0"), list("9", "9Gi"), "", ""},
		{v1.ResourceList{"example.com/unknown": resource.MustParse("1")}, nil, "OutOfexample.com/unknown", "the devices of this node's --node-config do not name example.com/unknown"},
		{v1.ResourceList{"hugepages-2Mi": resource.MustParse("4Mi")}, nil, "OutOfhugepages-2Mi", "Node didn't have enough resource: hugepages-2Mi, requested: 4194304, used: 0, capacity: 2097152"},
	} {
		has := list("2", "1Gi")
		has["hugepages-2Mi"] = resource.MustParse("2Mi")
		var got Waiting
		if lack := Lacking(tt.wanted, tt.used, has); lack != nil {
			got = *lack
		}
		if got != (Waiting{Reason: tt.lacks, Message: tt.says}) {
			t.Errorf("%v beside %v: %+v", tt.wanted, tt.used, got)
		}
	}
}

func TestAdmission(t *testing.T) {
	always := v1.RestartPolicyAlways
	selecting := func(p *v1.Pod) *v1.Pod {
		p.Spec.NodeSelector = map[string]string{"disk": "ssd", "arch": "arm"}
		return p
	}
	asking := func(p *v1.Pod, memory string) *v1.Pod {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse(memory)}
		return p
	}
	labels, node := map[string]string{"disk": "hdd", "arch": "arm"}, v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
	compare(t, []planCase{
		{"another label", Input{Pod: selecting(wanted(always, "a")), NodeLabels: labels, Observed: observed()}, `
a waits: ContainerCreating
NodeAffinity`},
		{"the right labels", Input{Pod: selecting(wanted(always, "a")), NodeLabels: map[string]string{"disk": "ssd", "arch": "arm", "x": "y"}, Images: ready, Observed: observed()}, `
create sandbox attempt 0
a waits: ContainerCreating`},
		{"too much memory", Input{Pod: asking(wanted(always, "a"), "1025Mi"), Node: node, Observed: observed()}, `
a waits: ContainerCreating
OutOfmemory`},
		{"all of the memory", Input{Pod: asking(wanted(always, "a"), "1Gi"), Node: node, Images: ready, Observed: observed()}, `
create sandbox attempt 0
a waits: ContainerCreating`},
		{"no room beside the others", Input{Pod: asking(wanted(always, "a"), "513Mi"), Node: node, Used: v1.ResourceList{v1.ResourceMemory: resource.MustParse("512Mi")}, Observed: observed()}, `
a waits: ContainerCreating
OutOfmemory`},
		{"just enough", Input{Pod: asking(wanted(always, "a"), "512Mi"), Node: node, Used: v1.ResourceList{v1.ResourceMemory: resource.MustParse("512Mi")}, Images: ready, Observed: observed()}, `
create sandbox attempt 0
a waits: ContainerCreating`},
		{"no request, no room needed", Input{Pod: wanted(always, "a"), Node: node, Used: v1.ResourceList{v1.ResourceMemory: resource.MustParse("2Gi")}, Images: ready, Observed: observed()}, `
create sandbox attempt 0
a waits: ContainerCreating`},
		{"what runs stays", Input{Pod: selecting(wanted(always, "a")), NodeLabels: labels, Observed: observed(sandbox(0, true), ctr("a", 0, pod.Running))}, ``},
	})
}

func TestAShorterGraceArrivesMeanwhile(t *testing.T) {
	box, running := sandbox(0, true), ctr("a", 0, pod.Running)
	compare(t, []planCase{
		{"before it is asked", Input{MaxGrace: new(5 * time.Second), Observed: observed(box, running)}, `
terminate a a0 grace 5s (not wanted)
wake 5s`},
		{"after", Input{MaxGrace: new(15 * time.Second), Observed: observed(box, running), Signalled: map[string]pod.Signals{"a0": asked(10 * time.Second)}}, `
wake 5s`},
		{"too late", Input{MaxGrace: new(5 * time.Second), Observed: observed(box, running), Signalled: map[string]pod.Signals{"a0": asked(10 * time.Second)}}, `
kill a a0 (grace period over)`},
		{"none", Input{MaxGrace: new(time.Duration(0)), Observed: observed(box, running, ctr("s", 0, pod.Running, sidecar(1)))}, `
kill a a0 (not wanted)
kill s s0 (not wanted)`},
		{"a longer one counts for nothing", Input{MaxGrace: new(time.Hour), Observed: observed(box, running)}, `
terminate a a0 grace 30s (not wanted)
wake 30s`},
	})
}
