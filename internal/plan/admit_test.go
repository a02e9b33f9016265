package plan

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestLack checks which resource keeps a pod from a node with 2 CPUs, 1 GiB of memory and 2 MiB of huge pages.
func TestLack(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	}
	for _, tt := range []struct {
		wanted, used v1.ResourceList
		lacks, says  string
	}{
		{list("1", "1Gi"), nil, "", ""},
		{list("1500m", "1Gi"), list("501m", "0"), "OutOfcpu", "Node didn't have enough resource: cpu, requested: 1500, used: 501, capacity: 2000"},
		{list("3", "3Gi"), nil, "OutOfcpu", "Node didn't have enough resource: cpu, requested: 3000, used: 0, capacity: 2000"},
		{list("1", "1Ki"), list("1", "1Gi"), "OutOfmemory", "Node didn't have enough resource: memory, requested: 1024, used: 1073741824, capacity: 1073741824"},
		{list("0", "0"), list("9", "9Gi"), "", ""},
		{v1.ResourceList{"example.com/unknown": resource.MustParse("1")}, nil, "OutOfexample.com/unknown", "nobody has it"},
		{v1.ResourceList{"hugepages-2Mi": resource.MustParse("4Mi")}, nil, "OutOfhugepages-2Mi", "Node didn't have enough resource: hugepages-2Mi, requested: 4194304, used: 0, capacity: 2097152"},
	} {
		has := list("2", "1Gi")
		has["hugepages-2Mi"] = resource.MustParse("2Mi")
		var got Waiting
		why := map[v1.ResourceName]string{"example.com/unknown": "nobody has it"}
		if lack := (Machine{Has: has, Used: tt.used, Why: why}).Lack(tt.wanted); lack != nil {
			got = *lack
		}
		if got != (Waiting{Reason: tt.lacks, Message: tt.says}) {
			t.Errorf("%v beside %v: %+v", tt.wanted, tt.used, got)
		}
	}
}

// TestLackOfDevices: whoever waits for a device learns who has it.
func TestLackOfDevices(t *testing.T) {
	const gpu = v1.ResourceName("example.com/gpu")
	number := func(n string) v1.ResourceList { return v1.ResourceList{gpu: resource.MustParse(n)} }
	for _, tt := range []struct {
		of   Machine
		says string
	}{
		{Machine{Has: number("2"), Used: number("1")}, ""},
		{
			Machine{Has: number("2"), Used: number("2"), Holders: map[v1.ResourceName]string{gpu: "default/a, default/b"}},
			"Node didn't have enough resource: example.com/gpu, requested: 1, used: 2, capacity: 2; in use by default/a, default/b",
		},
		{
			Machine{Has: number("0"), Unhealthy: map[v1.ResourceName]int{gpu: 1}},
			"Node didn't have enough resource: example.com/gpu, requested: 1, used: 0, capacity: 0; unhealthy: 1",
		},
	} {
		var says string
		if lack := tt.of.Lack(number("1")); lack != nil {
			says = lack.Message
		}
		if says != tt.says {
			t.Errorf("%q, want %q", says, tt.says)
		}
	}
}

// TestNever: without plugins a device that is missing does not come, however long a pod waits.
func TestNever(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{
		Limits:   v1.ResourceList{"example.com/gpu": resource.MustParse("1")},
		Requests: v1.ResourceList{"example.com/gpu": resource.MustParse("1")},
	}}}}}
	for _, tt := range []struct {
		of   Machine
		says string
	}{
		{Machine{}, ""},
		{Machine{NoPlugins: true, Why: map[v1.ResourceName]string{"example.com/gpu": "nobody has it"}}, "nobody has it"},
		{Machine{NoPlugins: true, Has: v1.ResourceList{"example.com/gpu": resource.MustParse("1")}, Used: p.Spec.Containers[0].Resources.Limits}, ""},
	} {
		var says string
		if why := never(Input{Pod: p, Machine: tt.of}); why != nil {
			says = why.Message
		}
		if says != tt.says {
			t.Errorf("%+v: %q, want %q", tt.of, says, tt.says)
		}
	}
}
