package plan

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestInsufficient checks which resource keeps a pod from a node with 2 CPUs, 1 GiB of memory and 2 MiB of huge pages.
func TestInsufficient(t *testing.T) {
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
		{v1.ResourceList{"example.com/unknown": resource.MustParse("1")}, nil, "OutOfexample.com/unknown", "the devices of this node's --node-config do not name example.com/unknown"},
		{v1.ResourceList{"hugepages-2Mi": resource.MustParse("4Mi")}, nil, "OutOfhugepages-2Mi", "Node didn't have enough resource: hugepages-2Mi, requested: 4194304, used: 0, capacity: 2097152"},
	} {
		has := list("2", "1Gi")
		has["hugepages-2Mi"] = resource.MustParse("2Mi")
		var got Waiting
		if lack := Insufficient(tt.wanted, tt.used, has); lack != nil {
			got = *lack
		}
		if got != (Waiting{Reason: tt.lacks, Message: tt.says}) {
			t.Errorf("%v beside %v: %+v", tt.wanted, tt.used, got)
		}
	}
}
