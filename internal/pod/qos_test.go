package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestQOS: a request that is given counts even if it is zero.
func TestQOS(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		l := v1.ResourceList{}
		for name, q := range map[v1.ResourceName]string{v1.ResourceCPU: cpu, v1.ResourceMemory: memory} {
			if q != "" {
				l[name] = resource.MustParse(q)
			}
		}
		return l
	}
	for _, c := range []struct {
		name             string
		limits, requests v1.ResourceList
		want             v1.PodQOSClass
		cpus             int
	}{
		{name: "nothing", want: v1.PodQOSBestEffort},
		{name: "zeros", limits: list("0", "0"), requests: list("0", "0"), want: v1.PodQOSBestEffort},
		{name: "equal", limits: list("2", "1Gi"), requests: list("2", "1Gi"), want: v1.PodQOSGuaranteed, cpus: 2},
		{name: "limits alone", limits: list("2", "1Gi"), want: v1.PodQOSGuaranteed, cpus: 2},
		{name: "zero requests", limits: list("2", "1Gi"), requests: list("0", "0"), want: v1.PodQOSBurstable},
		{name: "zero CPU", limits: list("2", "1Gi"), requests: list("0", "1Gi"), want: v1.PodQOSBurstable},
		{name: "CPU alone", limits: list("2", ""), requests: list("2", ""), want: v1.PodQOSBurstable},
		{name: "no limits", requests: list("", "1Gi"), want: v1.PodQOSBurstable},
	} {
		r := v1.ResourceRequirements{Limits: c.limits, Requests: c.requests}
		ofContainer := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a", Resources: r}}}}
		if got := QOS(ofContainer); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if got := OwnCPUs(ofContainer, &ofContainer.Spec.Containers[0]); got != c.cpus {
			t.Errorf("%s: %d CPUs of its own, want %d", c.name, got, c.cpus)
		}
		ofPod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}}, Resources: &r}}
		if got := QOS(ofPod); got != c.want {
			t.Errorf("%s, for the whole pod: %s, want %s", c.name, got, c.want)
		}
	}
}
