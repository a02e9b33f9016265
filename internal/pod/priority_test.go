package pod_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

func TestPriority(t *testing.T) {
	t.Parallel()
	high := int32(7)
	for class, want := range map[string]int64{"": 0, "mine": 0, "system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000} {
		p := &v1.Pod{Spec: v1.PodSpec{PriorityClassName: class}}
		if got := pod.Priority(p); got != want {
			t.Errorf("%q: %d", class, got)
		}
		p.Spec.Priority = &high
		if got := pod.Priority(p); got != 7 {
			t.Errorf("%q with 7: %d", class, got)
		}
	}
}
