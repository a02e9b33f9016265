package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// allRestartOn adds a rule to c that restarts all containers when c exits with code.
func allRestartOn(c *v1.Container, code int32) {
	if c.RestartPolicy == nil {
		c.RestartPolicy = new(v1.ContainerRestartPolicyNever)
	}
	c.RestartPolicyRules = []v1.ContainerRestartRule{{
		Action:    v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{code}},
	}}
}

func round(n int) func(*pod.Container) { return func(c *pod.Container) { c.RestartGeneration = n } }

func TestAllContainersRestart(t *testing.T) {
	job := func() *v1.Pod {
		p := withInit(wanted(v1.RestartPolicyNever, "a", "b"), "i", "S")
		allRestartOn(&p.Spec.Containers[1], 88)
		return p
	}
	box, side := sandbox(0, true), ctr("s", 0, pod.Running, sidecar(2))
	source := ctr("b", 0, pod.Exited, code(88), reaped)
	compare(t, []planCase{
		{"first all are ended, at once", Input{Pod: job(), Images: allReady, Observed: observed(box, succeeded("i"), ctr("a", 0, pod.Running, preStop), side, source)}, `
kill a a0 (all containers restart)
kill s s0 (all containers restart)
i waits: PodInitializing
s waits: PodInitializing
a waits: PodInitializing
b waits: PodInitializing`},
		{"only once", Input{Pod: job(), Images: allReady, Observed: observed(box, succeeded("i"), ctr("a", 0, pod.Running), source), Signalled: map[string]pod.Signals{"a0": {Killed: now.Add(-time.Second)}}}, `
wake 4s
i waits: PodInitializing
s waits: PodInitializing
a waits: PodInitializing
b waits: PodInitializing`},
		{"then they are initialized anew", Input{Pod: job(), Images: allReady, Observed: observed(box, succeeded("i"), ctr("s", 0, pod.Exited, code(137), sidecar(2), reaped), ctr("a", 0, pod.Exited, code(137), reaped), source)}, `
start i attempt 1 back-off 0 (all containers restart)
i waits: PodInitializing
s waits: PodInitializing
a waits: PodInitializing
b waits: PodInitializing`},
		{"and start again, what had completed too", Input{Pod: job(), Images: allReady, Observed: observed(box, ctr("i", 1, pod.Exited, reaped, round(1)), ctr("s", 1, pod.Running, sidecar(2), round(1)), succeeded("a"), source)}, `
start a attempt 1 back-off 0 (all containers restart)
start b attempt 1 back-off 1 (exit code 88)
a waits: PodInitializing
b waits: PodInitializing`},
		{"until they have come to their end", Input{Pod: job(), Images: allReady, Observed: observed(box, ctr("i", 1, pod.Exited, reaped, round(1)), ctr("a", 1, pod.Exited, reaped, round(1)), ctr("b", 1, pod.Exited, reaped, round(1)))}, `
remove sandbox s0 (pod completed)
completed`},
		{"who causes it again waits its back-off", Input{Pod: job(), Images: allReady, Observed: observed(box, ctr("i", 2, pod.Exited, reaped, round(2)), ctr("s", 2, pod.Running, sidecar(2), round(2)),
			ctr("a", 2, pod.Running, round(2)), ctr("b", 1, pod.Exited, code(88), step(1), reaped, round(1)))}, `
wake 9s
b waits: CrashLoopBackOff`},
		{"another code is its own", Input{Pod: job(), Images: allReady, Observed: observed(box, succeeded("i"), side, ctr("a", 0, pod.Running), ctr("b", 0, pod.Exited, code(1), reaped))}, ``},
	})
}
