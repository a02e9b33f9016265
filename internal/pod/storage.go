package pod

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// StorageLimits bound what a pod may take of the machine's disk.
type StorageLimits struct {
	// Volumes are of emptyDirs on disk.
	Volumes map[string]resource.Quantity
	// Containers are for each one's layer of its root filesystem and its logs.
	Containers map[string]resource.Quantity
	// Whole is for all of that together, emptyDirs without a limit of their own and the files that podrun provides
	// under /etc too; nil: there is none.
	Whole *resource.Quantity
}

// Any reports that there is something to measure.
func (l StorageLimits) Any() bool { return len(l.Volumes) > 0 || l.Whole != nil }

// StorageLimitsOf are the limits that p's manifest has. As in Kubernetes the containers' together are the
// pod's, whether or not each has one.
func StorageLimitsOf(p *v1.Pod) StorageLimits {
	var out StorageLimits
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if !OnDisk(v) || v.EmptyDir.SizeLimit == nil || v.EmptyDir.SizeLimit.Sign() <= 0 {
			continue
		}
		if out.Volumes == nil {
			out.Volumes = map[string]resource.Quantity{}
		}
		out.Volumes[v.Name] = *v.EmptyDir.SizeLimit
	}
	for _, c := range AllContainers(p) {
		limit, ok := c.Resources.Limits[v1.ResourceEphemeralStorage]
		if !ok || limit.Sign() <= 0 {
			continue
		}
		if out.Containers == nil {
			out.Containers = map[string]resource.Quantity{}
		}
		out.Containers[c.Name] = limit
	}
	if len(out.Containers) > 0 {
		whole := resourcehelper.PodLimits(p, resourcehelper.PodResourcesOptions{})[v1.ResourceEphemeralStorage]
		out.Whole = &whole
	}
	return out
}

// OnDisk reports that v is an emptyDir on the machine's disk.
func OnDisk(v *v1.Volume) bool {
	return v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault
}

// Space is what something takes of a file system.
type Space struct{ Bytes, Files int64 }

// Add is the space of both.
func (s Space) Add(o Space) Space { return Space{s.Bytes + o.Bytes, s.Files + o.Files} }

// Usage is what a pod takes of the machine's disk, in bytes, as far as it was measured.
type Usage struct {
	// Volumes are emptyDirs, Containers the layers of root filesystems and the logs, by name.
	Volumes, Containers map[string]int64
	// Etc is of the files that podrun provides in all of the pod's containers, such as /etc/hosts.
	Etc int64
}
