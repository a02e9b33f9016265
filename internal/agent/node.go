package agent

import (
	"maps"
	goruntime "runtime"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/cgroup"
)

// nodeResources returns the node's allocatable resources: all of the machine's, since podrun
// reserves nothing for itself.
func nodeResources(o Options) v1.ResourceList {
	list := v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(int64(goruntime.NumCPU()), resource.DecimalSI)}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		list[v1.ResourceMemory] = *resource.NewQuantity(int64(info.Totalram)*int64(info.Unit), resource.BinarySI)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(o.Dirs.Root, &disk); err == nil {
		list[v1.ResourceEphemeralStorage] = *resource.NewQuantity(int64(disk.Blocks)*disk.Bsize, resource.BinarySI)
	}
	pages, err := cgroup.HugePages()
	if err != nil {
		o.Log.Debug("reading the machine's huge pages failed", "err", err)
	}
	maps.Copy(list, hugePages(pages))
	for name, devices := range o.Connect.Devices {
		list[name] = *resource.NewQuantity(int64(len(devices)), resource.DecimalSI)
	}
	return list
}

// hugePages converts bytes by page size to resources. A page size that is not available now is left
// out: a container that requests it waits until it is.
func hugePages(pages map[int64]int64) v1.ResourceList {
	list := v1.ResourceList{}
	for size, bytes := range pages {
		name := v1.ResourceHugePagesPrefix + resource.NewQuantity(size, resource.BinarySI).String()
		list[v1.ResourceName(name)] = *resource.NewQuantity(bytes, resource.BinarySI)
	}
	return list
}

// nodeLabels returns the labels that the kubelet gives every node.
func nodeLabels(o Options) map[string]string {
	return map[string]string{
		v1.LabelHostname:   o.NodeName,
		v1.LabelOSStable:   goruntime.GOOS,
		v1.LabelArchStable: goruntime.GOARCH,
	}
}
