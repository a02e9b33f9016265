package resources

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

func TestHeld(t *testing.T) {
	for _, tt := range []struct{ wants, runs, want string }{
		{"requests.cpu=1,limits.memory=1Gi", "requests.cpu=2,limits.memory=2Gi", "requests.cpu=2,limits.memory=2Gi"},
		{"requests.cpu=2,limits.memory=2Gi", "requests.cpu=1,limits.memory=1Gi", "requests.cpu=2,limits.memory=2Gi"},
		{"limits.cpu=1,limits.memory=1Gi", "limits.cpu=2", "limits.cpu=2"}, // it has no limit of memory yet
		{"limits.cpu=1", "limits.cpu=1,limits.memory=1Gi", "limits.cpu=1"}, // it will have none
		{"", "requests.memory=1Gi", "requests.memory=1Gi"},
		{"pod.limits.memory=1Gi", "pod.limits.memory=2Gi", "pod.limits.memory=2Gi"},
		{"pod.limits.memory=2Gi", "limits.memory=1Gi,pod.limits.memory=1Gi", "pod.limits.memory=2Gi"},
		{"limits.cpu=1", "limits.cpu=1;limits.cpu=3;limits.cpu=2", "limits.cpu=3"}, // it is not known which one
		{"limits.cpu=1", "limits.cpu=1;", ""},
		{"limits.memory=1Gi", "pod.limits.memory=2Gi", ""},
		{"limits.memory=1Gi,pod.limits.memory=1Gi", "limits.memory=1Gi", "limits.memory=1Gi"},
	} {
		own, pods := pod.ParseResources(tt.wants)
		p := &v1.Pod{Spec: v1.PodSpec{Resources: &pods, Containers: []v1.Container{{Name: "a", Resources: own}, {Name: "b", Resources: own}}}}
		has := held(p, map[string]string{"a": tt.runs})
		if got := pod.ResourcesOf(has, &has.Spec.Containers[0]); got != tt.want {
			t.Errorf("%q while %q runs: %q", tt.wants, tt.runs, got)
		}
		if got := has.Spec.Containers[1].Resources; got.String() != own.String() {
			t.Errorf("a container that does not run wants %v", got)
		}
		if got := pod.ResourcesOf(p, &p.Spec.Containers[0]); got != tt.wants {
			t.Errorf("the original is %q", got)
		}
	}
}
