package pod

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestSharedResources: of all resources, only a device keeps a second pod from running beside the first one.
func TestSharedResources(t *testing.T) {
	for name, alone := range map[v1.ResourceName]bool{
		v1.ResourceCPU: false, v1.ResourceMemory: false, v1.ResourceEphemeralStorage: false, "hugepages-2Mi": false,
		"example.com/gpu": true,
	} {
		limits := v1.ResourceList{name: resource.MustParse("2Mi")}
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Limits: limits}}}}}
		if why := RunsAlone(p, false); strings.Contains(why, string(name)) != alone || !alone && why != "" {
			t.Errorf("%s: %q", name, why)
		}
	}
}
