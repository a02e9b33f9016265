package plan

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/pod"
)

// asking sets the CPU and memory requests of p's first container.
func asking(p *v1.Pod, cpu, memory string, policies ...v1.ContainerResizePolicy) *v1.Pod {
	c := &p.Spec.Containers[0]
	c.Resources.Requests = list(cpu, memory)
	c.ResizePolicy = policies
	return p
}

func list(cpu, memory string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
}

func TestResize(t *testing.T) {
	p := wanted(v1.RestartPolicyAlways, "a")
	p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m")}
	has := func(text string) func(*pod.Container) { return func(c *pod.Container) { c.Resources = text } }
	compare(t, []planCase{
		{"other resources", Input{Pod: p, Observed: observed(sandbox(0, true), ctr("a", 0, pod.Running, has("limits.cpu=1")))}, `
resize a a0 to "limits.cpu=500m"
resizing`},
		{"the same", Input{Pod: p, Observed: observed(sandbox(0, true), ctr("a", 0, pod.Running, has("limits.cpu=500m")))}, ``},
		{"none any more", Input{Pod: wanted(v1.RestartPolicyAlways, "a"), Observed: observed(sandbox(0, true), ctr("a", 0, pod.Running, has("limits.cpu=1")))}, `
resize a a0 to ""
resizing`},
		{"one that failed waits", Input{Pod: p, Observed: observed(sandbox(0, true), ctr("a", 0, pod.Running, has("limits.cpu=1"))),
			Failures: map[string]Failure{FailureResize + "a": {At: now, Count: 2}}}, `
wake 2s
resizing: Error`},
		{"what is being ended is left alone", Input{Pod: p, Observed: observed(sandbox(0, true), ctr("a", 0, pod.Running, has("limits.cpu=1"))), Signalled: map[string]pod.Signals{"a0": asked(0)}}, `
wake 30s`},
	})
}

func TestAllocation(t *testing.T) {
	always, never := v1.RestartPolicyAlways, v1.RestartPolicyNever
	box, data := sandbox(0, true), pod.UID("u1")
	sized := func(cpu, memory string) func(*pod.Container) {
		p := asking(wanted(always, "a"), cpu, memory)
		return func(c *pod.Container) { c.Resources = pod.ResourcesOf(p, &p.Spec.Containers[0]) }
	}
	small := observed(box, data, ctr("a", 0, pod.Running, sized("1", "1Gi")))
	anew := v1.ContainerResizePolicy{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}
	in := func(has, says *v1.Pod, used v1.ResourceList) Input {
		return Input{Pod: has, Resized: says, Observed: small, Node: list("4", "8Gi"), Used: used, Images: ready}
	}
	has := func() *v1.Pod { return asking(wanted(always, "a"), "1", "1Gi") }
	ended := func(p *v1.Pod) Input {
		return Input{Pod: p, Images: ready, Observed: observed(box, data, ctr("a", 3, pod.Exited, step(3), reaped, sized("1", "1Gi"))),
			Probed: map[string]pod.Probed{"a3": {Failed: RenewFailed("a")}}}
	}
	compare(t, []planCase{
		{"what the machine has is allocated first", in(has(), asking(wanted(always, "a"), "2", "2Gi"), list("2", "6Gi")), `
allocate what the manifest says`},
		{"what others have is waited for", in(has(), asking(wanted(always, "a"), "2", "1Gi"), list("3", "1Gi")), `
resize pending: Deferred: Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000`},
		{"what the machine does not have will not come", in(has(), asking(wanted(always, "a"), "1", "9Gi"), list("3", "1Gi")), `
resize pending: Infeasible: Node didn't have enough resource: memory, requested: 9663676416, used: 0, capacity: 8589934592`},
		{"less is always given", in(has(), asking(wanted(always, "a"), "500m", "1Gi"), list("4", "8Gi")), `
allocate what the manifest says`},
		{"what is more must be there, though other is less", in(has(), asking(wanted(always, "a"), "500m", "2Gi"), list("4", "8Gi")), `
resize pending: Deferred: Node didn't have enough resource: memory, requested: 2147483648, used: 8589934592, capacity: 8589934592`},
		{"who waits for more is kept alive", Input{Pod: has(), Resized: asking(wanted(always, "a"), "9", "1Gi"), Node: list("4", "8Gi"), Images: ready,
			Observed: observed(box, data, ctr("a", 0, pod.Exited, sized("1", "1Gi")))}, `
start a attempt 1 back-off 1 (exit code 0)
a waits: ContainerCreating
resize pending: Infeasible: Node didn't have enough resource: cpu, requested: 9000, used: 0, capacity: 4000`},
		{"a pod that starts anew is what its manifest says", Input{Pod: asking(wanted(never, "a"), "1", "1Gi"), Resized: asking(wanted(never, "a"), "9", "1Gi"),
			Node: list("4", "8Gi"), Earlier: true, Observed: observed(data, ctr("a", 0, pod.Exited, reaped))}, `
allocate what the manifest says, for a new start
remove data of u1
remove a a0 (pod starts again)
a waits: ContainerCreating
again`},
		{"one that has ended does not change", Input{Pod: asking(wanted(never, "a"), "1", "1Gi"), Resized: asking(wanted(never, "a"), "2", "1Gi"),
			Node: list("4", "8Gi"), Observed: observed(data, ctr("a", 0, pod.Exited, reaped))}, `
completed`},
		{"then what runs is changed", in(asking(wanted(always, "a"), "2", "1Gi"), nil, nil), `
resize a a0 to "requests.cpu=2,requests.memory=1Gi"
resizing`},
		{"or renewed, where the policy says so", in(asking(wanted(always, "a"), "1", "2Gi", anew), nil, nil), `
renew a a0 (resize)
resizing`},
		{"which other changes do not ask for", in(asking(wanted(always, "a"), "2", "1Gi", anew), nil, nil), `
resize a a0 to "requests.cpu=2,requests.memory=1Gi"
resizing`},
		{"what failed is tried again", Input{Pod: asking(wanted(always, "a"), "2", "1Gi"), Observed: small,
			Failures: map[string]Failure{FailureResize + "a": {Reason: "ResizeError", Message: "busy", At: now, Count: 1}}}, `
wake 1s
resizing: Error: busy`},
		{"what is renewed is asked to end", Input{Pod: asking(wanted(always, "a"), "1", "2Gi", anew), Observed: small,
			Probed: map[string]pod.Probed{"a0": {Failed: RenewFailed("a")}}}, `
terminate a a0 grace 30s (Container a resize requires restart)
wake 30s
resizing`},
		{"and started again at once", ended(asking(wanted(always, "a"), "1", "2Gi", anew)), `
start a attempt 4 back-off 3 (Container a resize requires restart)
a waits: ContainerCreating
resizing`},
		{"though it never restarts otherwise", ended(ownPolicy(asking(wanted(always, "a"), "1", "2Gi", anew), v1.ContainerRestartPolicyNever)), `
start a attempt 4 back-off 3 (Container a resize requires restart)
a waits: ContainerCreating
resizing`},
	})
}

func ownPolicy(p *v1.Pod, policy v1.ContainerRestartPolicy) *v1.Pod {
	p.Spec.Containers[0].RestartPolicy = &policy
	return p
}
