package images

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/usage"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/images/fetched"
	"podrun.io/podrun/internal/runtime/containerd/images/pull"
	"podrun.io/podrun/internal/runtime/containerd/images/unpacked"
)

// LabelImageID is the label of a container that has the ID of the image from which the container
// was created, as in pod.Image. The code that creates containers sets it.
const LabelImageID = "podrun.io/image-id"

// Inventory lists, measures and removes the images that containerd has.
type Inventory struct {
	client  *daemon.Client
	volumes *unpacked.Volumes
	leases  *fetched.Leases
}

// ListImages returns all images, sorted by name.
func (v *Inventory) ListImages(ctx context.Context) ([]pod.StoredImage, error) {
	ctx = v.client.Context(ctx)
	all, err := v.client.ImageService().List(ctx)
	if err != nil {
		return nil, daemon.Mapped("listing images", err)
	}
	made, err := v.client.ContainerService().List(ctx)
	if err != nil {
		return nil, daemon.Mapped("listing containers", err)
	}
	names, digests := map[string]bool{}, map[string]bool{}
	for _, c := range made {
		names[c.Image] = true
		if _, digest, ok := strings.Cut(c.Labels[LabelImageID], "@"); ok {
			digests[digest] = true
		}
	}
	shown, err := v.volumes.Digests(ctx)
	if err != nil {
		return nil, err
	}
	out := []pod.StoredImage{}
	for _, i := range all {
		size, err := usage.CalculateImageUsage(ctx, i, unpacked.Texts(v.client.ContentStore()),
			usage.WithManifestLimit(platforms.Default(), 1), usage.WithManifestUsage())
		// An image with missing content, or which is refused for its size, is listed too.
		if err != nil && !daemon.IsNotFound(err) && !errors.Is(err, unpacked.ErrTooBig) {
			return nil, daemon.Mapped("measuring image "+unpacked.Quoted(i.Name), err)
		}
		out = append(out, pod.StoredImage{
			Name: i.Name, ID: unpacked.ImageID(i), Size: size, CreatedAt: i.CreatedAt,
			Used:   names[i.Name] || digests[i.Target.Digest.String()] || shown[i.Target.Digest.String()],
			Pinned: i.Labels[pull.LabelPinned] == "pinned",
		})
	}
	slices.SortFunc(out, func(a, b pod.StoredImage) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// PruneImages removes the images that are neither used nor pinned, and returns their names. It also removes what
// interrupted pulls have fetched. The images in except, by references with digests, stay. The disk space is free when
// it returns.
func (v *Inventory) PruneImages(ctx context.Context, except ...string) ([]string, error) {
	kept := map[string]bool{}
	for _, ref := range except {
		if id, err := unpacked.FullName(ref); err == nil {
			kept[id] = true
		}
	}
	all, err := v.ListImages(ctx)
	if err != nil {
		return nil, err
	}
	ctx = v.client.Context(ctx)
	var unused []string
	for _, i := range all {
		if !i.Used && !i.Pinned && !kept[i.ID] {
			unused = append(unused, i.Name)
		}
	}
	for n, name := range unused {
		var opts []images.DeleteOpt
		if n == len(unused)-1 {
			opts = append(opts, images.SynchronousDelete())
		}
		if err := v.client.ImageService().Delete(ctx, name, opts...); err != nil && !daemon.IsNotFound(err) {
			return unused[:n], daemon.Mapped("removing image "+unpacked.Quoted(name), err)
		}
	}
	_, err = v.leases.DropFetched(ctx)
	return unused, err
}

// ErrUsed reports that a container, running or not, or a volume of a pod was created from an image that has no
// other name.
var ErrUsed = errors.New("a container or a volume is made of it")

// RemoveImage removes an image and returns its full name. Of an image with several names it removes the one
// alone. It returns ErrUsed for the last name of an image in use unless force is set. The disk space is free
// when it returns.
func (v *Inventory) RemoveImage(ctx context.Context, ref string, force bool) (string, error) {
	all, err := v.ListImages(ctx)
	if err != nil {
		return "", err
	}
	stored, err := find(all, ref)
	if err != nil {
		return "", err
	}
	if stored.Used && !force && !slices.ContainsFunc(all, func(i pod.StoredImage) bool {
		return i.Name != stored.Name && digestOf(i) == digestOf(stored)
	}) {
		return "", fmt.Errorf("image %s: %w", unpacked.Quoted(stored.Name), ErrUsed)
	}
	err = v.client.ImageService().Delete(v.client.Context(ctx), stored.Name, images.SynchronousDelete())
	if err != nil && !daemon.IsNotFound(err) {
		return "", daemon.Mapped("removing image "+unpacked.Quoted(stored.Name), err)
	}
	return stored.Name, nil
}

// HoldImage gives an image that is stored under a tag the name ref, which has its digest, so that containerd does not
// remove it when the tag comes to refer to another image. It does nothing if no tag of the repository refers to it.
func (v *Inventory) HoldImage(ctx context.Context, ref string) error {
	ctx = v.client.Context(ctx)
	stored, err := unpacked.ByDigest(ctx, v.client, ref)
	if err != nil || len(stored) == 0 {
		return err
	}
	named, err := unpacked.FullName(ref)
	if err != nil {
		return err
	}
	labels := maps.Clone(stored[0].Labels)
	delete(labels, pull.LabelPinned)
	_, err = v.client.ImageService().Create(ctx, images.Image{Name: named, Target: stored[0].Target, Labels: labels})
	if err != nil && !errdefs.IsAlreadyExists(daemon.Native(err)) {
		return daemon.Mapped("holding image "+unpacked.Quoted(named), err)
	}
	return nil
}

// digestOf returns the digest of an image, which is the same under all of its names.
func digestOf(i pod.StoredImage) string {
	_, digest, _ := strings.Cut(i.ID, "@")
	return digest
}

// find finds an image by a reference in any form that a user may write.
func (v *Inventory) find(ctx context.Context, ref string) (pod.StoredImage, error) {
	all, err := v.ListImages(ctx)
	if err != nil {
		return pod.StoredImage{}, err
	}
	return find(all, ref)
}

func find(all []pod.StoredImage, ref string) (pod.StoredImage, error) {
	full, err := unpacked.FullName(ref)
	if err != nil {
		full = ref
	}
	for _, i := range all {
		if i.Name == full || i.Name == ref {
			return i, nil
		}
	}
	for _, i := range all { // by ID: name@digest
		if i.ID == full {
			return i, nil
		}
	}
	return pod.StoredImage{}, fmt.Errorf("image %s: %w", unpacked.Quoted(ref), runtime.ErrNotFound)
}

// ImageRoot returns the directory of the snapshotter's files, "" if containerd does not report it.
func (v *Inventory) ImageRoot() string { return v.client.SnapshotRoot }

// ImagesSize returns the disk usage of the images' unpacked layers, which containerd records when
// it unpacks them.
func (v *Inventory) ImagesSize(ctx context.Context) (pod.Space, error) {
	ctx = v.client.Context(ctx)
	layers := v.client.Snapshots()
	var out pod.Space
	err := layers.Walk(ctx, func(ctx context.Context, info snapshots.Info) error {
		if info.Kind != snapshots.KindCommitted {
			return nil
		}
		used, err := layers.Usage(ctx, info.Name)
		if daemon.IsNotFound(err) {
			return nil
		}
		out = out.Add(pod.Space{Bytes: used.Size, Files: used.Inodes})
		return err
	})
	if err != nil {
		return pod.Space{}, daemon.Mapped("measuring the layers of images", err)
	}
	return out, nil
}
