package nodeinfo

import (
	"cmp"
	"context"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/stats"
	"podrun.io/podrun/internal/stats/disk"
	"podrun.io/podrun/internal/sys"
)

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
		Size:   meter.ClaimSize,
		Driver: driver,
		Images: r.ImagesSize,
		FS:     sys.ReadFS,
		Device: sys.DeviceOf,
		Data:   dirs.Root,
		Logs:   dirs.Log,
		Root:   cmp.Or(r.ImageRoot(), dirs.Root),
	}
}
