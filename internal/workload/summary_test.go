package workload

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

// TestUnavailable: a pod beyond the replicas that is not available counts, as in Kubernetes.
func TestUnavailable(t *testing.T) {
	for name, c := range map[string]struct {
		summary Summary
		want    int32
	}{
		"all are available":      {Summary{Desired: 2, Current: 2, Available: 2}, 0},
		"some do not exist yet":  {Summary{Desired: 3, Current: 1, Available: 1}, 2},
		"one beyond is starting": {Summary{Desired: 1, Current: 2, Available: 1}, 1},
		"one beyond is the last": {Summary{Desired: 1, Current: 2, Available: 2}, 0},
	} {
		d := &appsv1.Deployment{}
		SetStatus(d, c.summary)
		if got := d.Status.UnavailableReplicas; got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
