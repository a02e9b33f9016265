package unpacked

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/images/accounts"
)

// Image is what a start needs of an image whose layers are unpacked. The content of an image never
// changes, so Images are cached.
type Image struct {
	// Config is the image's configuration of its process.
	Config  imagespec.ImageConfig
	digest  string
	chainID string
	// user is the user that the image's USER names, with its groups; nil if it could not be found.
	user   *accounts.User
	finder *Finder
	// name is the name that was passed to FindImage.
	name string
}

// Named returns the image as the runtime port represents it, by the name under which it is stored.
func (i *Image) Named(stored images.Image) pod.Image {
	return pod.Image{Name: stored.Name, ID: ImageID(stored), StopSignal: SignalName(i.Config.StopSignal)}
}

// UserLabels returns the label of an image that records the user that the image's USER names; nil
// if the user could not be found, or is too long for a label.
func (i *Image) UserLabels() map[string]string {
	if i.user == nil {
		return nil
	}
	if text := userText(i.digest, *i.user); text != "" {
		return map[string]string{labelUser: text}
	}
	return nil
}

// User returns the user for name, which has the form of an image's USER, in the image. As in
// Kubernetes, a name that the image's account files do not have is an error. It unpacks the image again if its layers
// have been removed.
func (i *Image) User(ctx context.Context, name string) (accounts.User, error) {
	if i.user != nil && name == oci.UserName(&v1.Pod{}, &v1.Container{}, i.Config.User) {
		return *i.user, nil
	}
	ctx = i.finder.client.Context(ctx)
	user, err := i.finder.users.find(ctx, i, name)
	if daemon.IsNotFound(err) { // its layers have been removed
		if err = i.unpack(ctx); err == nil {
			user, err = i.finder.users.find(ctx, i, name)
		}
	}
	if err != nil {
		return accounts.User{}, fmt.Errorf("finding the user %q in image %s: %w", name, Quoted(i.name), err)
	}
	return user, nil
}

// RootFS creates a fresh root filesystem from the image and returns its mounts. It replaces what an
// interrupted start left under the same key, and unpacks the image again if its layers have been
// removed. The caller has to remove the snapshot with that key.
func (i *Image) RootFS(ctx context.Context, key string, opts ...snapshots.Opt) ([]mount.Mount, error) {
	ctx = i.finder.client.Context(ctx)
	store := i.finder.client.Snapshots()
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
	found, err := i.finder.client.GetImage(ctx, i.name)
	if err != nil {
		return err
	}
	// The name may refer to another image by now, so its sizes are checked too.
	if _, _, err := i.finder.spec(ctx, found.Metadata()); err != nil {
		return err
	}
	return found.Unpack(ctx, i.finder.client.Snapshotter)
}
