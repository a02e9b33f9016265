package images

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
)

// RootFS makes a fresh root filesystem of the image, and returns how it is mounted. What an interrupted start left
// under its key is replaced, and an image whose layers have gone is unpacked again. Whoever asked for it removes it.
func (i *Image) RootFS(ctx context.Context, key string, opts ...snapshots.Opt) ([]mount.Mount, error) {
	ctx = i.store.client.Context(ctx)
	store := i.store.client.Snapshots()
	mounts, err := store.Prepare(ctx, key, i.chainID, opts...)
	switch {
	case errdefs.IsAlreadyExists(err):
		if err := store.Remove(ctx, key); err != nil {
			return nil, fmt.Errorf("removing an old root filesystem: %w", err)
		}
	case errdefs.IsNotFound(err):
		if err := i.unpack(ctx); err != nil {
			return nil, fmt.Errorf("unpacking the image again: %w", err)
		}
	case err != nil:
		return nil, fmt.Errorf("making the root filesystem: %w", err)
	default:
		return mounts, nil
	}
	mounts, err = store.Prepare(ctx, key, i.chainID, opts...)
	if err != nil {
		return nil, fmt.Errorf("making the root filesystem: %w", err)
	}
	return mounts, nil
}

// unpack makes the image's layers ready again.
func (i *Image) unpack(ctx context.Context) error {
	found, err := i.store.client.GetImage(ctx, i.name)
	if err != nil {
		return err
	}
	return found.Unpack(ctx, i.store.client.Snapshotter)
}
