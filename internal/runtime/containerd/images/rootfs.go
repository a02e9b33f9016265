package images

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
)

// RootFS creates a fresh root filesystem from the image and returns its mounts. It replaces what an
// interrupted start left under the same key, and unpacks the image again if its layers have been
// removed. The caller has to remove the snapshot with that key.
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

// unpack unpacks the image's layers again.
func (i *Image) unpack(ctx context.Context) error {
	found, err := i.store.client.GetImage(ctx, i.name)
	if err != nil {
		return err
	}
	return found.Unpack(ctx, i.store.client.Snapshotter)
}
