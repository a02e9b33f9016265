package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// When the next attempt is does not depend on when it is asked.
func TestNextAttempt(t *testing.T) {
	t.Parallel()
	crashed := func(at time.Time) Input {
		return Input{Pod: wanted(v1.RestartPolicyAlways, "a"), Boot: boot, Now: at,
			Observed: observed(sandbox(0, true), ctr("a", 1, pod.Exited, code(1), step(2), reaped, ran(time.Second, 0)), pod.UID("u1"))}
	}
	for _, after := range []time.Duration{0, time.Second, 19 * time.Second} {
		if got := Compute(crashed(now.Add(after))).Next; !got.Equal(now.Add(20 * time.Second)) {
			t.Errorf("asked after %s: %s, want %s", after, got, now.Add(20*time.Second))
		}
	}
	if got := Compute(crashed(now.Add(21 * time.Second))).Next; !got.IsZero() {
		t.Errorf("due: %s", got)
	}
	failed := Input{Pod: wanted(v1.RestartPolicyAlways, "a", "b"), Boot: boot, Now: now, Observed: observed(sandbox(0, true), pod.UID("u1")),
		Failures: map[string]Failure{
			"a": {Reason: ReasonErrImagePull, At: now.Add(-time.Second), Count: 2},
			"b": {Reason: ReasonErrImagePull, At: now.Add(-time.Second), Count: 1},
		}}
	if got := Compute(failed).Next; !got.Equal(now.Add(9 * time.Second)) {
		t.Errorf("two pulls that failed: %s", got)
	}
}
