package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/image-spec/identity"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/ocispec"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
)

// image is what a start needs of an image. An image's content never changes, so this is remembered.
type image struct {
	config  imagespec.ImageConfig
	chainID string
	// user is who the image's USER names, with its groups.
	user specs.User
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

// Resolve implements runtime.Images.
func (r *Runtime) Resolve(ctx context.Context, ref string) (pod.Image, error) {
	ctx = r.client.Context(ctx)
	var names []string
	if full, err := fullName(ref); err == nil {
		names = append(names, full)
	}
	if len(names) == 0 || names[0] != ref {
		names = append(names, ref) // an archive may have been loaded under a short name
	}
	for _, name := range names {
		found, err := r.client.ImageService().Get(ctx, name)
		if daemon.IsNotFound(err) {
			continue
		}
		if err != nil {
			return pod.Image{}, daemon.Mapped("looking for image "+name, err)
		}
		if _, err := r.ready(ctx, found); err != nil {
			return pod.Image{}, err
		}
		return pod.Image{Name: found.Name, ID: imageID(found)}, nil
	}
	return r.resolveDigest(ctx, ref)
}

// resolveDigest finds an image that is named by its digest under another name of its repository, such as the tag that an
// archive gave it.
func (r *Runtime) resolveDigest(ctx context.Context, ref string) (pod.Image, error) {
	named, err := reference.ParseDockerRef(ref)
	if pinned, ok := named.(reference.Canonical); err == nil && ok {
		all, err := r.client.ImageService().List(ctx, fmt.Sprintf("target.digest==%q", pinned.Digest()))
		if err != nil {
			return pod.Image{}, daemon.Mapped("looking for image "+ref, err)
		}
		for _, found := range all {
			if imageID(found) != named.String() {
				continue // another repository's: who may have the one need not have the other
			}
			if _, err := r.ready(ctx, found); err != nil {
				return pod.Image{}, err
			}
			return pod.Image{Name: found.Name, ID: imageID(found)}, nil
		}
	}
	return pod.Image{}, fmt.Errorf("image %s: %w", ref, runtime.ErrNotFound)
}

// imageFor is what a start needs of an image that Resolve or Pull returned.
func (r *Runtime) imageFor(ctx context.Context, i pod.Image) (*image, error) {
	if _, digest, ok := strings.Cut(i.ID, "@"); ok {
		if known, ok := r.images.Get(digest); ok {
			return known, nil
		}
	}
	found, err := r.client.ImageService().Get(ctx, i.Name)
	if err != nil {
		return nil, daemon.Mapped("looking for image "+i.Name, err)
	}
	return r.ready(ctx, found)
}

// ready reads what a start needs of the image, unpacked. ErrNotFound: its content is not complete.
func (r *Runtime) ready(ctx context.Context, i images.Image) (*image, error) {
	digest := i.Target.Digest.String()
	if known, ok := r.images.Get(digest); ok {
		return known, nil
	}
	full := client.NewImage(r.client.Client, i)
	spec, err := full.Spec(ctx)
	if err != nil {
		return nil, daemon.Mapped("reading the config of image "+i.Name, err)
	}
	out := &image{config: spec.Config, chainID: identity.ChainID(spec.RootFS.DiffIDs).String()}
	if _, err := r.client.Snapshots().Stat(ctx, out.chainID); daemon.IsNotFound(err) {
		if err := full.Unpack(ctx, r.client.Snapshotter); err != nil {
			return nil, daemon.Mapped("unpacking image "+i.Name, err)
		}
	} else if err != nil {
		return nil, daemon.Mapped("looking for the layers of image "+i.Name, err)
	}
	if out.user, err = r.userOf(ctx, i, out); err != nil {
		return nil, err
	}
	r.images.Put(digest, out)
	return out, nil
}

// unpack makes the image's layers ready again.
func (r *Runtime) unpack(ctx context.Context, name string) error {
	found, err := r.client.GetImage(ctx, name)
	if err != nil {
		return err
	}
	return found.Unpack(ctx, r.client.Snapshotter)
}

// userLabel is the content of labelUser. It holds for the digest only: a name may come to stand for
// another image.
type userLabel struct {
	Digest string   `json:"digest"`
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}

// userText is the content of labelUser; "" if it is too long for a label.
func userText(digest string, user specs.User) string {
	text, err := json.Marshal(userLabel{Digest: digest, UID: user.UID, GID: user.GID, Groups: user.AdditionalGids})
	if err != nil || len(text) >= daemon.LabelLimit-len(labelUser) {
		return ""
	}
	return string(text)
}

// userOf is who the image's USER names, looked up in the image's own files. The answer is kept as the
// image's label, because looking takes a mount.
func (r *Runtime) userOf(ctx context.Context, i images.Image, known *image) (specs.User, error) {
	digest := i.Target.Digest.String()
	var kept userLabel
	if json.Unmarshal([]byte(i.Labels[labelUser]), &kept) == nil && kept.Digest == digest {
		return specs.User{UID: kept.UID, GID: kept.GID, AdditionalGids: kept.Groups}, nil
	}
	user, err := r.lookUpUser(ctx, digest, known, known.config.User)
	if err != nil {
		return specs.User{}, fmt.Errorf("finding the user %q of image %s: %w", known.config.User, i.Name, err)
	}
	if text := userText(digest, user); text != "" {
		i.Labels = map[string]string{labelUser: text}
		if _, err := r.client.ImageService().Update(ctx, i, "labels."+labelUser); err != nil {
			r.Log.Debug("an image's user is not kept", "image", i.Name, "why", err)
		}
	}
	return user, nil
}

// userNamed is who name, in the form of an image's USER, stands for in an image that is running or about to.
func (r *Runtime) userNamed(ctx context.Context, i pod.Image, known *image, name string) (specs.User, error) {
	if name == ocispec.UserName(&v1.Pod{}, &v1.Container{}, known.config.User) {
		return known.user, nil
	}
	key := known.chainID + " " + name
	r.lookingUp.Lock() // one looks, the others hear of it
	defer r.lookingUp.Unlock()
	if user, ok := r.users.Get(key); ok {
		return user, nil
	}
	user, err := r.lookUpUser(ctx, known.chainID, known, name)
	if err != nil {
		return specs.User{}, fmt.Errorf("finding the user %q in image %s: %w", name, i.Name, err)
	}
	r.users.Put(key, user)
	return user, nil
}

// lookUpUser looks for the user name, which may be a number, in the image's files. Digest is of the image or
// its files.
func (r *Runtime) lookUpUser(ctx context.Context, digest string, known *image, name string) (user specs.User, err error) {
	ctx, release, err := r.client.WithLease(ctx) // else the view might be collected while it is used
	if err != nil {
		return user, err
	}
	clean, cancel := daemon.CleanupContext(ctx)
	defer cancel()
	defer func() { _ = release(clean) }() // it expires by itself
	snapshots := r.client.Snapshots()
	key := "podrun-user-" + digest + "-" + name
	mounts, err := snapshots.View(ctx, key, known.chainID)
	if errdefs.IsAlreadyExists(err) {
		mounts, err = snapshots.Mounts(ctx, key)
	}
	if err != nil {
		return user, err
	}
	defer func() {
		if gone := snapshots.Remove(clean, key); gone != nil && !daemon.IsNotFound(gone) {
			err = errors.Join(err, gone)
		}
	}()
	if name == "" {
		name = "0"
	}
	err = mount.WithReadonlyTempMount(ctx, mounts, func(root string) error {
		spec := &specs.Spec{Root: &specs.Root{Path: root}, Process: &specs.Process{}, Linux: &specs.Linux{}}
		opts := []oci.SpecOpts{oci.WithUser(name), oci.WithAdditionalGIDs(strings.Split(name, ":")[0])}
		if err := oci.ApplyOpts(ctx, nil, &containers.Container{}, spec, opts...); err != nil {
			return err
		}
		user = spec.Process.User
		return nil
	})
	return user, err
}
