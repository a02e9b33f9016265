package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func sizes(pairs ...string) v1.ResourceList {
	list := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func TestWhatIsSpelledIsRead(t *testing.T) {
	c := &v1.Container{Name: "a", Resources: v1.ResourceRequirements{Requests: sizes("cpu", "1500m", "ephemeral-storage", "1Gi"), Limits: sizes("memory", "1Gi")}}
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{*c}, Resources: &v1.ResourceRequirements{Limits: sizes("cpu", "3")}}}
	spelled := ResourcesOf(p, c)
	if want := "requests.cpu=1500m,limits.memory=1Gi,pod.limits.cpu=3"; spelled != want {
		t.Fatalf("%q, want %q", spelled, want)
	}
	if got := RunsWith(c, spelled); got.String() != c.Resources.String() {
		t.Errorf("%v", got)
	}
	// An instance that runs with other resources shows only those, and what cannot be resized.
	got := RunsWith(c, "requests.memory=1Mi")
	if cpu, has := got.Requests[v1.ResourceCPU]; has || got.Requests.Memory().Value() != 1<<20 || got.Requests.StorageEphemeral().Value() != 1<<30 || len(got.Limits) != 0 {
		t.Errorf("%v %v", cpu, got)
	}
	if bad := RunsWith(&v1.Container{}, "nonsense,requests.cpu=x"); len(bad.Requests)+len(bad.Limits) != 0 {
		t.Errorf("%v", bad)
	}
}

func TestNeedsRestart(t *testing.T) {
	memory := []v1.ContainerResizePolicy{{ResourceName: v1.ResourceCPU, RestartPolicy: v1.NotRequired}, {ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}}
	for _, tt := range []struct {
		from, to string
		want     bool
	}{
		{"requests.memory=1Gi", "requests.memory=2Gi", true},
		{"requests.memory=1Gi", "requests.memory=1024Mi", false},
		{"limits.memory=1Gi", "", true},
		{"", "requests.cpu=1", false},
		{"limits.memory=1Gi,pod.limits.memory=1Gi", "limits.memory=1Gi,pod.limits.memory=2Gi", false}, // its own counts
		{"pod.limits.memory=1Gi", "pod.limits.memory=2Gi", true},
	} {
		if got := NeedsRestart(&v1.Container{ResizePolicy: memory}, tt.from, tt.to); got != tt.want {
			t.Errorf("%q to %q: %v", tt.from, tt.to, got)
		}
		if NeedsRestart(&v1.Container{}, tt.from, tt.to) {
			t.Errorf("%q to %q without a policy", tt.from, tt.to)
		}
	}
}

func TestSized(t *testing.T) {
	of := func(cpu string) *v1.Pod {
		return &v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{{Name: "i"}}, Containers: []v1.Container{{Name: "a", Image: cpu,
			Resources: v1.ResourceRequirements{Requests: sizes("cpu", cpu)}}}}}
	}
	one, two := of("1"), of("2")
	got := Sized(two, one)
	if c := got.Spec.Containers[0]; c.Image != "2" || c.Resources.Requests.Cpu().Value() != 1 || !SameSize(got, one) || SameSize(one, two) {
		t.Errorf("%+v", got.Spec)
	}
	if two.Spec.Containers[0].Resources.Requests.Cpu().Value() != 2 {
		t.Error("the original was changed")
	}
}
