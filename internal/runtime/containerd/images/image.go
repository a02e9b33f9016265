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

// Image is what a start needs of an image whose layers are unpacked. An image's content never changes, so this is
// remembered.
type Image struct {
	// Config is what the image says of the process.
	Config  imagespec.ImageConfig
	chainID string
	// user is who the image's USER names, with its groups.
	user  specs.User
	store *Store
	// name is the one that FindImage was asked for.
	name string
}

// fullName is the reference as a registry knows it: busybox is docker.io/library/busybox:latest.
func fullName(ref string) (string, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return "", err
	}
	return named.String(), nil
}

// imageID is the identity that a status shows: name and digest.
func imageID(i images.Image) string {
	named, err := reference.ParseNormalizedNamed(i.Name)
	if err != nil {
		return i.Target.Digest.String()
	}
	return named.Name() + "@" + i.Target.Digest.String()
}

// portImage is the image as the port has it.
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

// resolveDigest finds an image that is named by its digest under another name of its repository, such as the tag that an
// archive gave it.
func (s *Store) resolveDigest(ctx context.Context, ref string) (pod.Image, error) {
	named, err := reference.ParseDockerRef(ref)
	if pinned, ok := named.(reference.Canonical); err == nil && ok {
		all, err := s.client.ImageService().List(ctx, fmt.Sprintf("target.digest==%q", pinned.Digest()))
		if err != nil {
			return pod.Image{}, daemon.Mapped("looking for image "+ref, err)
		}
		for _, found := range all {
			if imageID(found) != named.String() {
				continue // another repository's: who may have the one need not have the other
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

// ready reads what a start needs of the image, unpacked. ErrNotFound: its content is not complete.
func (s *Store) ready(ctx context.Context, i images.Image) (*Image, error) {
	digest := i.Target.Digest.String()
	unlock, err := s.lock(ctx, digest) // many that start at once unpack it once
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
		return nil, daemon.Mapped("looking for the layers of image "+i.Name, err)
	}
	if out.user, err = s.userOf(ctx, i, out); err != nil {
		return nil, err
	}
	s.cache.Put(digest, out)
	return out, nil
}
