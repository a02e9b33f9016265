package images

import (
	"context"
	"fmt"
	"strings"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/distribution/reference"
	"github.com/opencontainers/image-spec/identity"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
)

// Image is what a start needs of an image whose layers are unpacked. The content of an image never
// changes, so Images are cached.
type Image struct {
	// Config is the image's configuration of its process.
	Config  imagespec.ImageConfig
	chainID string
	// user is the user that the image's USER names, with its groups.
	user  specs.User
	store *Store
	// name is the name that was passed to FindImage.
	name string
}

// fullName returns the normalised reference: docker.io/library/busybox:latest for busybox.
func fullName(ref string) (string, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return "", err
	}
	return named.String(), nil
}

// imageID returns the ID that a status shows: the name without a tag, and the digest.
func imageID(i images.Image) string {
	named, err := reference.ParseNormalizedNamed(i.Name)
	if err != nil {
		return i.Target.Digest.String()
	}
	return named.Name() + "@" + i.Target.Digest.String()
}

// portImage returns the image as the runtime port represents it.
func portImage(i images.Image, content *Image) pod.Image {
	return pod.Image{Name: i.Name, ID: imageID(i), StopSignal: SignalName(content.Config.StopSignal)}
}

// Resolve implements runtime.Images.
func (s *Store) Resolve(ctx context.Context, ref string) (pod.Image, error) {
	ctx = s.client.Context(ctx)
	var names []string
	if full, err := fullName(ref); err == nil {
		names = append(names, full)
	}
	if len(names) == 0 || names[0] != ref {
		names = append(names, ref) // an archive may have been loaded under a short name
	}
	for _, name := range names {
		found, err := s.client.ImageService().Get(ctx, name)
		if daemon.IsNotFound(err) {
			continue
		}
		if err != nil {
			return pod.Image{}, daemon.Mapped("looking for image "+name, err)
		}
		content, err := s.ready(ctx, found)
		if err != nil {
			return pod.Image{}, err
		}
		return portImage(found, content), nil
	}
	return s.resolveDigest(ctx, ref)
}

// resolveDigest finds an image that ref names by digest and that the store has under another name
// of the same repository, such as the tag that an archive gave it.
func (s *Store) resolveDigest(ctx context.Context, ref string) (pod.Image, error) {
	named, err := reference.ParseDockerRef(ref)
	if pinned, ok := named.(reference.Canonical); err == nil && ok {
		all, err := s.client.ImageService().List(ctx, fmt.Sprintf("target.digest==%q", pinned.Digest()))
		if err != nil {
			return pod.Image{}, daemon.Mapped("looking for image "+ref, err)
		}
		for _, found := range all {
			if imageID(found) != named.String() {
				continue // another repository's: access to the one does not imply access to the other
			}
			content, err := s.ready(ctx, found)
			if err != nil {
				return pod.Image{}, err
			}
			return portImage(found, content), nil
		}
	}
	return pod.Image{}, fmt.Errorf("image %s: %w", ref, runtime.ErrNotFound)
}

// FindImage returns what a start needs of an image that Resolve or Pull returned.
func (s *Store) FindImage(ctx context.Context, i pod.Image) (*Image, error) {
	known, err := s.find(s.client.Context(ctx), i)
	if err != nil {
		return nil, err
	}
	named := *known
	named.name = i.Name
	return &named, nil
}

// find returns the image from the cache or, if it is not cached, from containerd.
func (s *Store) find(ctx context.Context, i pod.Image) (*Image, error) {
	if _, digest, ok := strings.Cut(i.ID, "@"); ok {
		if known, ok := s.cache.Get(digest); ok {
			return known, nil
		}
	}
	found, err := s.client.ImageService().Get(ctx, i.Name)
	if err != nil {
		return nil, daemon.Mapped("looking for image "+i.Name, err)
	}
	return s.ready(ctx, found)
}

// ready unpacks the image, if necessary, and returns what a start needs of it. It returns
// ErrNotFound if the content of the image is not complete.
func (s *Store) ready(ctx context.Context, i images.Image) (*Image, error) {
	digest := i.Target.Digest.String()
	unlock, err := s.lock(ctx, digest) // so that concurrent starts unpack it only once
	if err != nil {
		return nil, err
	}
	defer unlock()
	if known, ok := s.cache.Get(digest); ok {
		return known, nil
	}
	full := client.NewImage(s.client.Client, i)
	spec, err := full.Spec(ctx)
	if err != nil {
		return nil, daemon.Mapped("reading the config of image "+i.Name, err)
	}
	out := &Image{Config: spec.Config, chainID: identity.ChainID(spec.RootFS.DiffIDs).String(), store: s}
	if _, err := s.client.Snapshots().Stat(ctx, out.chainID); daemon.IsNotFound(err) {
		if err := full.Unpack(ctx, s.client.Snapshotter); err != nil {
			return nil, daemon.Mapped("unpacking image "+i.Name, err)
		}
	} else if err != nil {
		return nil, daemon.Mapped("inspecting the layers of image "+i.Name, err)
	}
	if out.user, err = s.userOf(ctx, i, out); err != nil {
		return nil, err
	}
	s.cache.Put(digest, out)
	return out, nil
}
