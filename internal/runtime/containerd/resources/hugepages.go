package resources

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/oci"
)

// supportedPageSizes returns the huge page sizes that the machine had when podrun started, if their
// use can be limited: no container may use huge pages that it did not request.
func supportedPageSizes(t *cgroup.Tree) []int64 {
	if !t.LimitsHugePages() {
		return nil
	}
	has, err := cgroup.HugePages()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(has))
}

// pageSizes returns the huge page sizes whose use is limited for a container. It returns an error
// if the machine does not have the huge pages that the container requests.
func (m *Machine) pageSizes(p *v1.Pod, c *v1.Container) ([]int64, error) {
	wanted := oci.HugePages(p, c)
	if len(wanted) == 0 {
		return m.limits.pageSizes, nil
	}
	if !m.cgroups.LimitsHugePages() {
		return nil, errors.New(
			"hugepages: the cgroup controller hugetlb is not in use on this machine, so they cannot be limited")
	}
	has, err := cgroup.HugePages()
	if err != nil {
		return nil, err
	}
	for _, size := range slices.Sorted(maps.Keys(wanted)) {
		if wanted[size] > has[size] {
			spell := func(bytes int64) string { return resource.NewQuantity(bytes, resource.BinarySI).String() }
			return nil, fmt.Errorf(
				"%s%s: the container asks for %s, and the machine has %s in such pages (see /proc/sys/vm/nr_hugepages)",
				v1.ResourceHugePagesPrefix, spell(size), spell(wanted[size]), spell(has[size]))
		}
	}
	return slices.Sorted(maps.Keys(has)), nil
}
