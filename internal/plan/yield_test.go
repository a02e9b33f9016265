package plan

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// TestYields: a pod that ends gives its host ports away; one that goes on in another sandbox does not, since the pod
// that would have them may not be ready.
func TestYields(t *testing.T) {
	t.Parallel()
	p := wanted(v1.RestartPolicyAlways, "a")
	hooked := func(c *pod.Container) { c.PreStop = true }
	for name, c := range map[string]struct {
		pod   *v1.Pod
		ready bool
		want  bool
	}{
		"not wanted":   {nil, true, true},
		"sandbox lost": {p, false, false},
	} {
		for _, options := range [][]func(*pod.Container){nil, {hooked}} {
			in := Input{Pod: c.pod, Now: now, Boot: boot, Observed: observed(
				sandbox(0, c.ready), ctr("a", 0, pod.Running, options...))}
			var got []bool
			for _, action := range Compute(in).Actions {
				switch a := action.(type) {
				case Terminate:
					got = append(got, a.Yields)
				case RunPreStop:
					got = append(got, a.Yields)
				}
			}
			if len(got) != 1 || got[0] != c.want {
				t.Errorf("%s: yields %v, want %v", name, got, c.want)
			}
		}
	}
}
