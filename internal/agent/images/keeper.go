package images

import (
	"log/slog"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/containerlog/orphangc"
	"podrun.io/podrun/internal/gc"
	"podrun.io/podrun/internal/runtime"
)

// Store is the part of the runtime that has images.
type Store interface {
	gc.Images
	// ImageRoot returns the directory of the images.
	ImageRoot() string
}

// NewKeeper returns the garbage collector, which prevents the disks from filling up.
func NewKeeper(dirs layout.Dirs, images Store, pods runtime.Lister, policy gc.Policy, log *slog.Logger) *gc.Keeper {
	return gc.New(gc.Options{
		Images: images, Logs: orphangc.Collector{Dirs: dirs, Pods: pods},
		Disks:  gc.Disks(dirs.Root, dirs.Log, images.ImageRoot()),
		Policy: policy, Record: dirs.ImageFiles().Used(), Log: log,
	})
}
