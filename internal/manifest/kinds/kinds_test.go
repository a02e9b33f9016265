package kinds

import (
	"slices"
	"strings"
	"testing"
)

// TestKinds: each kind is listed once, and one that is passed over says what that means.
func TestKinds(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, k := range slices.Concat(acted, passed) {
		if seen[k.Name] {
			t.Errorf("%s is listed twice", k.Name)
		}
		seen[k.Name] = true
		if got := Of(k.Name); got.Name != k.Name || got.Role == Unknown || (got.Role == Passed) != (got.Meaning != "") {
			t.Errorf("%s: %+v", k.Name, got)
		}
		if !k.Has(k.APIVersion()) {
			t.Errorf("%s has not its own apiVersion %s", k.Name, k.APIVersion())
		}
	}
	// What makes pods would be missing if it was passed over.
	for _, name := range strings.Fields("ReplicationController PodTemplate Deployment DaemonSet StatefulSet ReplicaSet Job CronJob") {
		if Of(name).Role == Passed {
			t.Errorf("%s is passed over", name)
		}
	}
}

func TestAPIVersions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, version string
		want          bool
	}{
		{"Service", "v1", true},
		{"Service", "apps/v1", false},
		{"Service", "", false},
		{"Service", "1", false},
		{"Ingress", "networking.k8s.io/v1", true},
		{"Ingress", "extensions/v1beta1", true}, // published long ago, and as little needed
		{"Ingress", "networking.k8s.io", false},
		{"Ingress", "networking.k8s.io/v1/v1", false},
		{"Ingress", "v1", false},
		{"HorizontalPodAutoscaler", "autoscaling/v2", true},
		{"HorizontalPodAutoscaler", "autoscaling/v2beta2", true},
		{"HorizontalPodAutoscaler", "autoscaling/v0", false},
		{"HorizontalPodAutoscaler", "autoscaling/v2gamma1", false},
		{"Pod", "v1", true},
		{"Pod", "v2", false},
	} {
		if got := Of(c.kind).Has(c.version); got != c.want {
			t.Errorf("%s %q: %v", c.kind, c.version, got)
		}
	}
}

func TestNear(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"Pods": "Pod", "service": "Service", "ServiceMonitor": "", "Secrets": "Secret", "": ""} {
		if got := Near(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
