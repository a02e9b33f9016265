package unpacked

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/platforms"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	// MaxText is the maximum size in bytes of an index, a manifest or a config of an image. An image may have
	// any, and podrun decodes them in its own memory, in which they take many times their size.
	// Registries too limit manifests to about 4 MiB.
	MaxText = 4 << 20
	// mostCached is the maximum size in bytes of a config that is kept in memory. Hardly any image
	// has a bigger one.
	mostCached = 64 << 10
	// mostName is the maximum length of an image's USER and STOPSIGNAL, which statuses and errors
	// show.
	mostName = 1 << 10
)

// ErrTooBig means that podrun does not decode an index, a manifest or a config.
var ErrTooBig = errors.New("is too big")

// isText reports whether content of a media type is decoded: an index, a manifest or a config.
func isText(mediaType string) bool {
	return images.IsIndexType(mediaType) || images.IsManifestType(mediaType) || images.IsConfigType(mediaType)
}

// CheckSize returns an error for an index, a manifest or a config that is too big according to its
// descriptor.
func CheckSize(desc imagespec.Descriptor) error {
	if !isText(desc.MediaType) {
		return nil
	}
	return checkText(desc.MediaType, desc.Size)
}

// checkText returns an error for a size that is too big for an index, a manifest or a config.
func checkText(mediaType string, size int64) error {
	if size <= MaxText {
		return nil
	}
	what := "config"
	if images.IsIndexType(mediaType) {
		what = "index"
	} else if images.IsManifestType(mediaType) {
		what = "manifest"
	}
	return fmt.Errorf("its %s %w: it has %d bytes; the maximum is %d", what, ErrTooBig, size, MaxText)
}

// texts is a content store in which nothing is opened that is too big for an index, a manifest or a
// config. An image declares itself the media type of its config, so the type makes no difference.
type texts struct{ content.InfoReaderProvider }

// Texts returns the content of a store of which indexes, manifests and configs can be read.
func Texts(store content.InfoReaderProvider) content.InfoReaderProvider { return texts{store} }

// ReaderAt implements content.Provider.
func (t texts) ReaderAt(ctx context.Context, desc imagespec.Descriptor) (content.ReaderAt, error) {
	opened, err := t.InfoReaderProvider.ReaderAt(ctx, desc)
	if err != nil {
		return nil, err
	}
	if err := checkText(desc.MediaType, opened.Size()); err != nil {
		_ = opened.Close()
		return nil, err
	}
	return opened, nil
}

// archived is a content store for containerd's import and export of archives, in which the layers
// can be of any size.
type archived struct{ content.Store }

// Archived returns a store of which archives can be made and into which they can be imported. It is
// for code that decodes only content that has the media type of an index, a manifest or a config.
func Archived(store content.Store) content.Store { return archived{store} }

// ReaderAt implements content.Provider.
func (a archived) ReaderAt(ctx context.Context, desc imagespec.Descriptor) (content.ReaderAt, error) {
	if isText(desc.MediaType) {
		return texts{a.Store}.ReaderAt(ctx, desc)
	}
	return a.Store.ReaderAt(ctx, desc)
}

// spec returns an image's config, and its size in bytes.
func (f *Finder) spec(ctx context.Context, i images.Image) (spec imagespec.Image, size int, err error) {
	return readSpec(ctx, Texts(f.client.ContentStore()), i.Target)
}

func readSpec(
	ctx context.Context, from content.Provider, target imagespec.Descriptor,
) (spec imagespec.Image, size int, err error) {
	desc, err := images.Config(ctx, from, target, platforms.Default())
	if err != nil {
		return spec, 0, err
	}
	text, err := content.ReadBlob(ctx, from, desc)
	if err != nil {
		return spec, 0, err
	}
	if err := json.Unmarshal(text, &spec); err != nil {
		return spec, 0, err
	}
	for name, value := range map[string]string{"USER": spec.Config.User, "STOPSIGNAL": spec.Config.StopSignal} {
		if len(value) > mostName {
			return spec, 0, fmt.Errorf("its %s has %d characters; the maximum is %d", name, len(value), mostName)
		}
	}
	return spec, len(text), nil
}
