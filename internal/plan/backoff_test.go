package plan

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// TestCrashLoopMessage checks the message of CrashLoopBackOff, which the goldens leave out: it is the kubelet's.
func TestCrashLoopMessage(t *testing.T) {
	p := Compute(Input{Pod: wanted(v1.RestartPolicyAlways, "c"), Now: now, Boot: boot, Observed: observed(sandbox(0, true), ctr("c", 1, pod.Exited, step(1), reaped))})
	const want = "back-off 10s restarting failed container=c pod=web-node_default(u1)"
	if got := p.Waiting["c"].Message; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
