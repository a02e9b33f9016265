package plan

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

func TestEvicted(t *testing.T) {
	always, never := v1.RestartPolicyAlways, v1.RestartPolicyNever
	box := sandbox(0, true)
	compare(t, []planCase{
		{"what runs is ended", Input{Pod: wanted(always, "a", "b"), Evicted: "full", Observed: observed(box, ctr("a", 0, pod.Running), ctr("b", 0, pod.Exited, reaped))}, `
terminate a a0 grace 30s (evicted)
wake 30s
Evicted`},
		{"nothing starts again", Input{Pod: wanted(always, "a"), Evicted: "full", Images: ready, Observed: observed(box, ctr("a", 0, pod.Exited, code(143), reaped))}, `
remove sandbox s0 (pod completed)
completed
Evicted`},
		{"it succeeded when it was told to end", Input{Pod: wanted(never, "a"), Evicted: "full", Observed: observed(ctr("a", 0, pod.Exited, reaped))}, `
completed
Evicted`},
	})
}
