package containerd

import (
	"context"
	"fmt"
)

// nativeSnapshotter copies the image into every root filesystem.
const nativeSnapshotter = "native"

// LayerSize implements runtime.Layers.
func (r *Runtime) LayerSize(ctx context.Context, id string) (int64, error) {
	ctx = r.context(ctx)
	c, there, err := r.ours(ctx, id)
	if err != nil || !there || c.SnapshotKey == "" {
		return 0, err
	}
	snapshots := r.client.SnapshotService(c.Snapshotter)
	used, err := snapshots.Usage(ctx, c.SnapshotKey)
	if isNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, mapped(fmt.Sprintf("measuring the root filesystem of %s", id), err)
	}
	if c.Snapshotter != nativeSnapshotter {
		return used.Size, nil
	}
	info, err := snapshots.Stat(ctx, c.SnapshotKey)
	if err != nil {
		return 0, mapped(fmt.Sprintf("measuring the root filesystem of %s", id), err)
	}
	image, err := snapshots.Usage(ctx, info.Parent)
	if err != nil {
		return 0, mapped(fmt.Sprintf("measuring the image of %s", id), err)
	}
	return max(used.Size-image.Size, 0), nil
}
