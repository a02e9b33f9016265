package resources

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/instance"
	"podrun.io/podrun/internal/sys"
)

// LayerMeter measures root filesystems. Its methods may be called concurrently.
type LayerMeter struct {
	client *daemon.Client
	lookup *instance.Lookup
}

// NewLayerMeter returns a LayerMeter.
func NewLayerMeter(client *daemon.Client, lookup *instance.Lookup) *LayerMeter {
	return &LayerMeter{client, lookup}
}

// LayerSize implements runtime.Layers.
func (m *LayerMeter) LayerSize(ctx context.Context, id string) (pod.Space, error) {
	ctx = m.client.Context(ctx)
	c, there, err := m.lookup.Record(ctx, id)
	if err != nil || !there || c.SnapshotKey == "" {
		return pod.Space{}, err
	}
	layers := m.client.SnapshotService(c.Snapshotter)
	used, err := layerUsage(ctx, layers, c.SnapshotKey)
	if daemon.IsNotFound(err) {
		return pod.Space{}, nil
	}
	if err != nil {
		return pod.Space{}, daemon.Mapped(fmt.Sprintf("measuring the root filesystem of %s", id), err)
	}
	if c.Snapshotter != daemon.NativeSnapshotter {
		return used, nil
	}
	info, err := layers.Stat(ctx, c.SnapshotKey)
	if err != nil {
		return pod.Space{}, daemon.Mapped(fmt.Sprintf("measuring the root filesystem of %s", id), err)
	}
	image, err := layers.Usage(ctx, info.Parent)
	if err != nil {
		return pod.Space{}, daemon.Mapped(fmt.Sprintf("measuring the image of %s", id), err)
	}
	return pod.Space{Bytes: max(used.Bytes-image.Size, 0), Files: max(used.Files-image.Inodes, 0)}, nil
}

// layerUsage returns the disk usage of a container's snapshot. If the files of the snapshot are in
// a directory, podrun measures that directory itself: containerd walks it by path, and so can never
// measure a container that creates directories so deep that their path is too long.
func layerUsage(ctx context.Context, layers snapshots.Snapshotter, key string) (pod.Space, error) {
	mounts, err := layers.Mounts(ctx, key)
	if err != nil {
		return pod.Space{}, err
	}
	if dir := writtenDir(mounts); dir != "" {
		bytes, files, err := sys.TreeSize(ctx, dir)
		// A containerd in another mount namespace has the directory elsewhere; the directory of a
		// removed snapshot does not exist.
		if files > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return pod.Space{Bytes: bytes, Files: files}, err
		}
	}
	used, err := layers.Usage(ctx, key)
	return pod.Space{Bytes: used.Size, Files: used.Inodes}, err
}

// writtenDir returns the directory with what is written to a snapshot; "" if there is no single
// one.
func writtenDir(mounts []mount.Mount) string {
	if len(mounts) != 1 {
		return ""
	}
	switch mounts[0].Type {
	case "bind":
		return mounts[0].Source
	case "overlay":
		for _, option := range mounts[0].Options {
			if dir, ok := strings.CutPrefix(option, "upperdir="); ok {
				return dir
			}
		}
	}
	return ""
}
