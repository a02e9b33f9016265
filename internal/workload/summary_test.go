package workload

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
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

// TestAvailable: as many pods may be unavailable as an update may take away; with percentages that come to none, one.
func TestAvailable(t *testing.T) {
	for _, c := range []struct {
		surge, unavailable string
		replicas, ready    int32
		want               v1.ConditionStatus
	}{
		{"25%", "25%", 1, 0, v1.ConditionFalse}, {"25%", "25%", 4, 3, v1.ConditionTrue}, {"25%", "25%", 4, 2, v1.ConditionFalse},
		{"0", "20%", 1, 0, v1.ConditionTrue}, {"0", "20%", 3, 1, v1.ConditionFalse},
	} {
		surge, unavailable := intstr.Parse(c.surge), intstr.Parse(c.unavailable)
		d := &appsv1.Deployment{}
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &unavailable}
		if got := Available(d, Summary{Desired: c.replicas, Available: c.ready}).Status; got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
