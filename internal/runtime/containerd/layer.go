package containerd

import (
	"context"
	"fmt"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
)

// LayerSize implements runtime.Layers.
func (r *Runtime) LayerSize(ctx context.Context, id string) (pod.Space, error) {
	ctx = r.client.Context(ctx)
	c, there, err := r.ours(ctx, id)
	if err != nil || !there || c.SnapshotKey == "" {
		return pod.Space{}, err
	}
	layers := r.client.SnapshotService(c.Snapshotter)
	used, err := layers.Usage(ctx, c.SnapshotKey)
	if daemon.IsNotFound(err) {
		return pod.Space{}, nil
	}
	if err != nil {
		return pod.Space{}, daemon.Mapped(fmt.Sprintf("measuring the root filesystem of %s", id), err)
	}
	if c.Snapshotter != daemon.NativeSnapshotter {
		return pod.Space{Bytes: used.Size, Files: used.Inodes}, nil
	}
	info, err := layers.Stat(ctx, c.SnapshotKey)
	if err != nil {
		return pod.Space{}, daemon.Mapped(fmt.Sprintf("measuring the root filesystem of %s", id), err)
	}
	image, err := layers.Usage(ctx, info.Parent)
	if err != nil {
		return pod.Space{}, daemon.Mapped(fmt.Sprintf("measuring the image of %s", id), err)
	}
	return pod.Space{Bytes: max(used.Size-image.Size, 0), Files: max(used.Inodes-image.Inodes, 0)}, nil
}
