package images

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	imagearchive "github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"

	"podrun.io/podrun/internal/image/decompress"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/images/fetched"
	"podrun.io/podrun/internal/runtime/containerd/images/unpacked"
)

// Archives load and save images.
type Archives struct {
	client    *daemon.Client
	finder    *unpacked.Finder
	leases    *fetched.Leases
	inventory *Inventory
}

// Load reads an OCI or Docker archive, compressed or not, unpacks its images and returns their full
// names, sorted. An archive that names no image is an error. If an image of the archive cannot be
// unpacked, its name continues to refer to the image that it referred to before, and the other
// images of the archive are still loaded.
func (a *Archives) Load(ctx context.Context, archive io.Reader) ([]string, error) {
	ctx = a.client.Context(ctx)
	plain, err := decompress.Stream(archive)
	if err != nil {
		return nil, fmt.Errorf("reading the archive: %w", err)
	}
	defer plain.Close()
	ctx, lease, err := a.leases.Begin(ctx, "of an archive")
	if err != nil {
		return nil, err
	}
	defer lease.End(ctx, true)
	found, err := readArchive(ctx, a.client.ContentStore(), plain)
	if err != nil {
		return nil, daemon.Mapped("loading the archive", err)
	}
	if len(found) == 0 {
		return nil, errors.New(
			"the archive names no image: give it a name when it is made, such as `docker save NAME:TAG`")
	}
	var names []string
	var errs []error
	for _, i := range found {
		if err := a.name(ctx, i); err != nil {
			errs = append(errs, err)
			continue
		}
		names = append(names, i.Name)
	}
	slices.Sort(names)
	return slices.Compact(names), errors.Join(errs...)
}

// Save writes images, for this machine's platform, as an archive that is both an OCI and a Docker
// archive. It writes nothing if an image is not present (ErrNotFound), or cannot be saved because its layers are not
// stored.
func (a *Archives) Save(ctx context.Context, refs []string, archive io.Writer) error {
	ctx = a.client.Context(ctx)
	opts := []imagearchive.ExportOpt{imagearchive.WithPlatform(platforms.Default())}
	for _, ref := range refs {
		stored, err := a.inventory.find(ctx, ref)
		if err != nil {
			return err
		}
		image, err := a.client.ImageService().Get(ctx, stored.Name)
		if err != nil {
			return daemon.Mapped("looking for image "+unpacked.Quoted(stored.Name), err)
		}
		err = unpacked.CheckStored(ctx, a.client, image)
		if errors.Is(err, unpacked.ErrNotStored) {
			fix := "fetch them with `podrun images pull`, or load the image from an archive that has them"
			return &runtime.PermanentError{Fix: fix, Err: err}
		}
		if err != nil {
			return err
		}
		opts = append(opts, imagearchive.WithImage(a.client.ImageService(), stored.Name))
	}
	return daemon.Mapped("saving images",
		imagearchive.Export(ctx, unpacked.Archived(a.client.ContentStore()), archive, opts...))
}

// readArchive writes the contents of an archive to the content store and returns the images that it
// names, by their full names. Only the lease protects the contents until an image refers to them.
func readArchive(ctx context.Context, store content.Store, archive io.Reader) ([]images.Image, error) {
	store = unpacked.Archived(store)
	archive, stop := bounded(archive)
	defer stop()
	list, err := imagearchive.ImportIndex(ctx, store, archive)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("it is cut off, or is no tar archive of images, as docker save and podman save make them")
	case errors.Is(err, tar.ErrHeader):
		return nil, errors.New("it is no tar archive of images, as docker save and podman save make them")
	case err != nil:
		return nil, err
	}
	text, err := content.ReadBlob(ctx, store, list)
	if err != nil {
		return nil, err
	}
	var index imagespec.Index
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, err
	}
	var found []images.Image
	for _, target := range index.Manifests {
		name := target.Annotations[images.AnnotationImageName]
		if name == "" {
			name = target.Annotations[imagespec.AnnotationRefName]
		}
		if name == "" {
			continue
		}
		if full, err := unpacked.FullName(name); err == nil { // a name that is not a valid reference is kept as it is
			name = full
		}
		found = append(found, images.Image{Name: name, Target: target})
	}
	return found, nil
}

// name unpacks an image of an archive and then makes its name refer to it.
func (a *Archives) name(ctx context.Context, i images.Image) error {
	platform := platforms.Default()
	_, err := images.Manifest(ctx, unpacked.Texts(a.client.ContentStore()), i.Target, platform)
	if p := i.Target.Platform; daemon.IsNotFound(err) || p != nil && !platform.Match(*p) {
		return fmt.Errorf("image %s: the archive has no content for platform %s",
			unpacked.Quoted(i.Name), platforms.Format(platforms.DefaultSpec()))
	}
	if err != nil {
		return daemon.Mapped("reading image "+unpacked.Quoted(i.Name), err)
	}
	if err := own(ctx, a.client.ContentStore(), i.Target); err != nil {
		return daemon.Mapped("reading image "+unpacked.Quoted(i.Name), err)
	}
	known, err := a.finder.Ready(ctx, i)
	if err != nil {
		return err
	}
	store, fields := a.client.ImageService(), []string{"target"}
	i.Labels = known.UserLabels()
	for label := range i.Labels {
		fields = append(fields, "labels."+label)
	}
	_, err = store.Update(ctx, i, fields...)
	if daemon.IsNotFound(err) {
		_, err = store.Create(ctx, i)
	}
	return daemon.Mapped("naming image "+unpacked.Quoted(i.Name), err)
}

// own records in containerd which contents an image consists of, so that they are kept as long as
// the image. An archive need not contain everything that its index names.
func own(ctx context.Context, store content.Store, target imagespec.Descriptor) error {
	if err := countNested(ctx, store, target); err != nil {
		return err
	}
	seen := map[digest.Digest]bool{}
	children := images.HandlerFunc(
		func(ctx context.Context, desc imagespec.Descriptor) ([]imagespec.Descriptor, error) {
			if seen[desc.Digest] {
				return nil, nil
			}
			seen[desc.Digest] = true
			return childrenThere(ctx, store, desc)
		})
	return images.Walk(ctx,
		images.SetChildrenLabels(store, images.FilterPlatforms(children, platforms.Default())), target)
}

// maxNested is the maximum number of images that an index may name, including those of nested
// indexes. Every path to an image counts: a few small indexes that name each other's successors
// many times can name billions.
const maxNested = 1000

// countNested returns an error for an index that names more than maxNested images.
func countNested(ctx context.Context, store content.InfoReaderProvider, target imagespec.Descriptor) error {
	count := 0
	return images.Walk(ctx, images.HandlerFunc(
		func(ctx context.Context, desc imagespec.Descriptor) ([]imagespec.Descriptor, error) {
			if count++; count > maxNested {
				return nil, fmt.Errorf("its index names more than %d images", maxNested)
			}
			if !images.IsIndexType(desc.MediaType) {
				return nil, images.ErrSkipDesc
			}
			return childrenThere(ctx, store, desc)
		}), target)
}

// childrenThere returns the descriptors of which desc consists; none if desc itself is missing.
func childrenThere(
	ctx context.Context, store content.InfoReaderProvider, desc imagespec.Descriptor,
) ([]imagespec.Descriptor, error) {
	below, err := images.Children(ctx, unpacked.Texts(store), desc)
	if daemon.IsNotFound(err) {
		return nil, images.ErrSkipDesc
	}
	return below, err
}
