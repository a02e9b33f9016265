// Package unpacked finds the images of one containerd namespace, unpacks their layers, and mounts
// them: as root filesystems of containers, as volumes of pods, and for a moment to find the users
// that an image names. The files of an image are untrusted: wherever podrun itself mounts them,
// they are read-only, without devices and without set-user-ID bits.
//
// It does not fetch, load or remove images. Besides layers and root filesystems, it leaves in
// containerd view snapshots for volumes that are images, and on each image a label with its user.
//
// Begin reading at Finder and Image.
package unpacked

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/distribution/reference"
	"github.com/opencontainers/image-spec/identity"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/sys/memo"
)

const (
	// mostImages is of how many images, and of how many users of images, this is remembered.
	mostImages = 512
	// mostGroups is the largest number of groups of a user that is remembered: their authors are an image's.
	mostGroups = 1000
)

// Finder finds the images of one containerd namespace and unpacks them. Its methods may be called
// concurrently.
type Finder struct {
	client *daemon.Client
	users  *users
	// cache maps the digest of an image's target to what is known of the image, unless that is big.
	cache memo.Map[string, *Image]
	locks locks
}

// NewFinder returns a Finder. It mounts the files of images in views to find their users.
func NewFinder(client *daemon.Client, views *Views, log *slog.Logger) *Finder {
	f := &Finder{client: client, users: &users{client: client, views: views, log: log}}
	f.cache.Limit(mostImages)
	f.users.cache.Limit(mostImages)
	return f
}

// Resolve implements runtime.Images.
func (f *Finder) Resolve(ctx context.Context, ref string) (pod.Image, error) {
	ctx = f.client.Context(ctx)
	var names []string
	if full, err := FullName(ref); err == nil {
		names = append(names, full)
	}
	if len(names) == 0 || names[0] != ref {
		names = append(names, ref) // an archive may have been loaded under a short name
	}
	for _, name := range names {
		found, err := f.client.ImageService().Get(ctx, name)
		if daemon.IsNotFound(err) {
			continue
		}
		if err != nil {
			return pod.Image{}, daemon.Mapped("looking for image "+Quoted(name), err)
		}
		content, err := f.Ready(ctx, found)
		if err != nil {
			return pod.Image{}, err
		}
		return content.Named(found), nil
	}
	return f.resolveDigest(ctx, ref)
}

// resolveDigest finds an image that ref names by digest and that the store has under another name
// of the same repository, such as the tag that an archive gave it.
func (f *Finder) resolveDigest(ctx context.Context, ref string) (pod.Image, error) {
	all, err := ByDigest(ctx, f.client, ref)
	if err != nil {
		return pod.Image{}, err
	}
	if len(all) == 0 {
		return pod.Image{}, fmt.Errorf("image %s: %w", Quoted(ref), runtime.ErrNotFound)
	}
	content, err := f.Ready(ctx, all[0])
	if err != nil {
		return pod.Image{}, err
	}
	return content.Named(all[0]), nil
}

// ByDigest returns the image that ref names by digest under each name of ref's repository that the store has for it:
// none if ref has no digest.
func ByDigest(ctx context.Context, c *daemon.Client, ref string) ([]images.Image, error) {
	named, err := reference.ParseDockerRef(ref)
	pinned, ok := named.(reference.Canonical)
	if err != nil || !ok {
		return nil, nil
	}
	all, err := c.ImageService().List(ctx, fmt.Sprintf("target.digest==%q", pinned.Digest()))
	if err != nil {
		return nil, daemon.Mapped("looking for image "+Quoted(ref), err)
	}
	// Access to another repository's image of this digest does not imply access to this one.
	return slices.DeleteFunc(all, func(i images.Image) bool { return ImageID(i) != named.String() }), nil
}

// FindImage returns what a start needs of an image that Resolve or Pull returned.
func (f *Finder) FindImage(ctx context.Context, i pod.Image) (*Image, error) {
	known, err := f.find(f.client.Context(ctx), i)
	if err != nil {
		return nil, err
	}
	named := *known
	named.name = i.Name
	return &named, nil
}

// find returns the image from the cache or, if it is not cached, from containerd.
func (f *Finder) find(ctx context.Context, i pod.Image) (*Image, error) {
	if _, digest, ok := strings.Cut(i.ID, "@"); ok {
		if known, ok := f.cache.Get(digest); ok {
			return known, nil
		}
	}
	found, err := f.client.ImageService().Get(ctx, i.Name)
	if err != nil {
		return nil, daemon.Mapped("looking for image "+Quoted(i.Name), err)
	}
	return f.Ready(ctx, found)
}

// Ready unpacks a stored image, if necessary, and returns what a start needs of it. It returns
// ErrNotFound if the content of the image is not complete. A USER that cannot be found is no error
// here, only of Image.User.
func (f *Finder) Ready(ctx context.Context, i images.Image) (*Image, error) {
	digest := i.Target.Digest.String()
	unlock, err := f.locks.lock(ctx, digest) // so that concurrent starts unpack it only once
	if err != nil {
		return nil, err
	}
	defer unlock()
	if known, ok := f.cache.Get(digest); ok {
		return known, nil
	}
	spec, size, err := f.spec(ctx, i)
	if err != nil {
		return nil, daemon.Mapped("reading the config of image "+Quoted(i.Name), err)
	}
	out := &Image{
		Config: spec.Config, digest: digest, chainID: identity.ChainID(spec.RootFS.DiffIDs).String(), finder: f,
	}
	if _, err := f.client.Snapshots().Stat(ctx, out.chainID); daemon.IsNotFound(err) {
		if err := client.NewImage(f.client.Client, i).Unpack(ctx, f.client.Snapshotter); err != nil {
			return nil, daemon.Mapped("unpacking image "+Quoted(i.Name), err)
		}
	} else if err != nil {
		return nil, daemon.Mapped("inspecting the layers of image "+Quoted(i.Name), err)
	}
	user, err := f.users.ofImage(ctx, i, out)
	switch {
	case err == nil:
		out.user = &user
	case ctx.Err() != nil:
		return nil, err
	default: // it matters only to a container that would run as this user, which asks again
		f.users.log.Debug("the user of an image cannot be found", "image", i.Name, "err", err)
	}
	if size <= mostCached && len(user.AdditionalGids) <= mostGroups {
		f.cache.Put(digest, out)
	}
	return out, nil
}
