package pod

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// StorageLimits are the limits of a pod's local ephemeral storage.
type StorageLimits struct {
	// Volumes are the limits of emptyDirs on disk, by volume name.
	Volumes map[string]resource.Quantity
	// Containers are the limits of each container's writable layer and logs, by container name.
	Containers map[string]resource.Quantity
	// Whole is the limit of all of that together, which includes emptyDirs without a limit of their
	// own, ConfigMaps and other files that podrun writes, and those under /etc; nil if there is none.
	Whole *resource.Quantity
}

// Any reports whether there is a limit that requires measuring.
func (l StorageLimits) Any() bool { return len(l.Volumes) > 0 || l.Whole != nil }

// StorageLimitsOf returns the limits of p's manifest. As in Kubernetes the sum of the containers'
// limits is the limit of the pod, even if not every container has one.
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

// OnDisk reports whether v is an emptyDir on the machine's disk.
func OnDisk(v *v1.Volume) bool {
	return v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault
}

const (
	// MaxFilled is the most, in bytes, that podrun writes into a volume of a ConfigMap, a Secret,
	// fields of the pod, or several of them, and MaxFilledPod into all such volumes of a pod: a few
	// items may name one value any number of times. Kubernetes limits an object to 1 MiB.
	MaxFilled, MaxFilledPod = 16 << 20, 64 << 20
	// FileBlock is the size of the blocks that such a file counts in. A directory counts as one.
	FileBlock = 4 << 10
)

// Filled reports whether podrun writes v's files, and if it does, whether it keeps them in memory:
// those of a Secret are never on the disk, and fields of the pod are not there in Kubernetes either.
func Filled(v *v1.Volume) (filled, memory bool) {
	if v.Projected != nil {
		return true, slices.ContainsFunc(v.Projected.Sources,
			func(s v1.VolumeProjection) bool { return s.Secret != nil })
	}
	return v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil, v.Secret != nil || v.DownwardAPI != nil
}

// Counts reports whether v counts against its pod's ephemeral storage: an emptyDir on disk or files
// that podrun writes there.
func Counts(v *v1.Volume) bool {
	filled, memory := Filled(v)
	return OnDisk(v) || filled && !memory
}

// Space is an amount of disk space and a number of files.
type Space struct{ Bytes, Files int64 }

// Add returns the sum of both.
func (s Space) Add(o Space) Space { return Space{s.Bytes + o.Bytes, s.Files + o.Files} }

// Usage is the measured local ephemeral storage of a pod in bytes.
type Usage struct {
	// Volumes holds the usage of the volumes that count, by volume name. Containers holds the usage of writable
	// layers and logs, by container name.
	Volumes, Containers map[string]int64
	// Etc is the size of the files that podrun provides in all of the pod's containers, such as
	// /etc/hosts.
	Etc int64
}
