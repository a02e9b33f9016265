package agent

import (
	goruntime "runtime"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// nodeResources is what the machine has for pods: all of it, since podrun keeps nothing for itself.
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
	return list
}

// nodeLabels are those that the kubelet gives every node.
func nodeLabels(o Options) map[string]string {
	return map[string]string{v1.LabelHostname: o.NodeName, v1.LabelOSStable: goruntime.GOOS, v1.LabelArchStable: goruntime.GOARCH}
}
