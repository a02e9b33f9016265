package nodeinfo

import (
	"cmp"
	"context"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/stats"
	"podrun.io/podrun/internal/stats/disk"
	"podrun.io/podrun/internal/sys"
)

// newStats returns the reader of what pods and the machine use. Without readable cgroups the usage of
// containers is left out.
func newStats(nodeName string, disks *stats.Disks) *stats.Stats {
	taken := func(string) (cgroup.Usage, error) { return cgroup.Usage{}, cgroup.ErrNoUsage }
	details := func(string) (cgroup.Details, error) { return cgroup.Details{}, cgroup.ErrNoUsage }
	processes := func(string) ([]int, error) { return nil, cgroup.ErrNoUsage }
	if tree, err := cgroup.Open(); err == nil {
		taken, details, processes = tree.Usage, tree.Details, tree.Processes
	}
	return stats.New(stats.Options{
		Node:      nodeName,
		Usage:     taken,
		Details:   details,
		Machine:   sys.ReadUsage,
		Processes: processes,
		Links:     sys.Links,
		Disks:     disks,
	})
}

// Images is the part of containerd that measures images.
type Images interface {
	runtime.Layers
	// ImageRoot is the directory of the file system that has the images; "" if it is not known.
	ImageRoot() string
	// ImagesSize measures all images.
	ImagesSize(ctx context.Context) (pod.Space, error)
}

// NewDisks returns the reader of disk usage. The image file system is the one that containerd reports,
// or else the root directory's.
// driver measures the volumes of CSI drivers.
func NewDisks(dirs layout.Dirs, r Images, driver stats.Driver) *stats.Disks {
	meter := disk.New(dirs, r)
	return &stats.Disks{
		Usage:  meter.Usage,
		Dir:    meter.VolumeDir,
		Driver: driver,
		Images: r.ImagesSize,
		FS:     sys.ReadFS,
		Device: sys.DeviceOf,
		Data:   dirs.Root,
		Logs:   dirs.Log,
		Root:   cmp.Or(r.ImageRoot(), dirs.Root),
	}
}
