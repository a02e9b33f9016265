package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	imagearchive "github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/platforms"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
)

// labelPinned is on images that no collector may remove; containerd's CRI gives it the same meaning.
const labelPinned = "io.cri-containerd.pinned"

// ImageRoot is where the snapshotter has images' files, "" when it does not say.
func (r *Runtime) ImageRoot() string { return r.client.SnapshotRoot }

// ListImages returns all images, by name.
func (r *Runtime) ListImages(ctx context.Context) ([]pod.StoredImage, error) {
	ctx = r.client.Context(ctx)
	all, err := r.client.ImageService().List(ctx)
	if err != nil {
		return nil, daemon.Mapped("listing images", err)
	}
	made, err := r.client.ContainerService().List(ctx)
	if err != nil {
		return nil, daemon.Mapped("listing containers", err)
	}
	names, digests := map[string]bool{}, map[string]bool{}
	for _, c := range made {
		names[c.Image] = true
		if _, digest, ok := strings.Cut(c.Labels[labelImageID], "@"); ok {
			digests[digest] = true
		}
	}
	shown, err := r.shown(ctx)
	if err != nil {
		return nil, err
	}
	out := []pod.StoredImage{}
	for _, i := range all {
		size, err := client.NewImage(r.client.Client, i).Size(ctx)
		if err != nil && !daemon.IsNotFound(err) { // part of its content is gone: it can be listed all the same
			return nil, daemon.Mapped("measuring image "+i.Name, err)
		}
		out = append(out, pod.StoredImage{
			Name: i.Name, ID: imageID(i), Size: size, CreatedAt: i.CreatedAt,
			Used: names[i.Name] || digests[i.Target.Digest.String()] || shown[i.Target.Digest.String()], Pinned: i.Labels[labelPinned] == "pinned",
		})
	}
	slices.SortFunc(out, func(a, b pod.StoredImage) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// PruneImages removes the images that nobody uses or has pinned and returns their names, and what interrupted pulls have
// fetched. The space is free when it returns.
func (r *Runtime) PruneImages(ctx context.Context) ([]string, error) {
	all, err := r.ListImages(ctx)
	if err != nil {
		return nil, err
	}
	ctx = r.client.Context(ctx)
	var unused []string
	for _, i := range all {
		if !i.Used && !i.Pinned {
			unused = append(unused, i.Name)
		}
	}
	for n, name := range unused {
		var opts []images.DeleteOpt
		if n == len(unused)-1 {
			opts = append(opts, images.SynchronousDelete())
		}
		if err := r.client.ImageService().Delete(ctx, name, opts...); err != nil && !daemon.IsNotFound(err) {
			return unused[:n], daemon.Mapped("removing image "+name, err)
		}
	}
	_, err = r.DropFetched(ctx)
	return unused, err
}

// ErrImageUsed says that a container, running or not, is made of an image, or a volume of a pod.
var ErrImageUsed = errors.New("a container or a volume is made of it")

// RemoveImage removes an image and returns its full name; ErrImageUsed unless by force. The space is free
// when it returns.
func (r *Runtime) RemoveImage(ctx context.Context, ref string, force bool) (string, error) {
	stored, err := r.stored(ctx, ref)
	if err != nil {
		return "", err
	}
	if stored.Used && !force {
		return "", fmt.Errorf("image %s: %w", stored.Name, ErrImageUsed)
	}
	err = r.client.ImageService().Delete(r.client.Context(ctx), stored.Name, images.SynchronousDelete())
	if err != nil && !daemon.IsNotFound(err) {
		return "", daemon.Mapped("removing image "+stored.Name, err)
	}
	return stored.Name, nil
}

// Save writes images, for this machine's platform, as an archive that is OCI's and Docker's at once.
func (r *Runtime) Save(ctx context.Context, refs []string, archive io.Writer) error {
	opts := []imagearchive.ExportOpt{imagearchive.WithPlatform(platforms.Default())}
	for _, ref := range refs {
		stored, err := r.stored(ctx, ref)
		if err != nil {
			return err
		}
		opts = append(opts, imagearchive.WithImage(r.client.ImageService(), stored.Name))
	}
	return daemon.Mapped("saving images", r.client.Export(r.client.Context(ctx), archive, opts...))
}

// stored finds an image by a reference as it may be written.
func (r *Runtime) stored(ctx context.Context, ref string) (pod.StoredImage, error) {
	all, err := r.ListImages(ctx)
	if err != nil {
		return pod.StoredImage{}, err
	}
	full, err := fullName(ref)
	if err != nil {
		full = ref
	}
	for _, i := range all {
		if i.Name == full || i.Name == ref {
			return i, nil
		}
	}
	for _, i := range all { // as Pull names it
		if i.ID == full {
			return i, nil
		}
	}
	return pod.StoredImage{}, fmt.Errorf("image %s: %w", ref, runtime.ErrNotFound)
}
