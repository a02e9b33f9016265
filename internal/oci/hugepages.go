package oci

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// HugePages returns c's huge page limits in bytes, by page size in bytes; the pod's limits apply
// where c has none of its own. The page sizes must have been validated.
func HugePages(p *v1.Pod, c *v1.Container) map[int64]int64 {
	out := map[int64]int64{}
	if p.Spec.Resources != nil {
		maps.Copy(out, hugePages(p.Spec.Resources.Limits))
	}
	maps.Copy(out, hugePages(c.Resources.Limits))
	return out
}

func hugePages(limits v1.ResourceList) map[int64]int64 {
	out := map[int64]int64{}
	for name, limit := range limits {
		if size, ok := pod.PageSize(name); ok {
			out[size] = limit.Value()
		}
	}
	return out
}

// hugePageLimits returns a limit for every page size of the machine: a container that requests no
// huge pages of a size may use none, as in Kubernetes.
func hugePageLimits(in Input) []specs.LinuxHugepageLimit {
	wanted := HugePages(in.Pod, in.Container)
	for _, size := range in.Machine.PageSizes {
		wanted[size] += 0
	}
	return spellHugePages(wanted)
}

// limitReservations gives reservations of huge pages the same limits as their use. Newer runc does so too, but runc
// before 1.1.10 limits the use only, so that a container could reserve, and thereby withhold, all pages of the machine.
func limitReservations(in Input, out *specs.LinuxResources) {
	if !in.CgroupV2 || !in.Machine.LimitsReservations {
		return
	}
	for _, l := range out.HugepageLimits {
		out.Unified["hugetlb."+l.Pagesize+".rsvd.max"] = strconv.FormatUint(l.Limit, 10)
	}
}

// spellHugePages returns the limits with the page sizes in the kernel's notation.
func spellHugePages(limits map[int64]int64) []specs.LinuxHugepageLimit {
	var out []specs.LinuxHugepageLimit
	for _, size := range slices.Sorted(maps.Keys(limits)) {
		out = append(out, specs.LinuxHugepageLimit{Pagesize: spellPageSize(size), Limit: uint64(limits[size])})
	}
	return out
}

func spellPageSize(size int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB"}
	i := 0
	for size%1024 == 0 && size > 0 && i < len(units)-1 {
		size, i = size/1024, i+1
	}
	return fmt.Sprintf("%d%s", size, units[i])
}
