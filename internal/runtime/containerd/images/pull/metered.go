package pull

import (
	"context"
	"io"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/transfer"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"

	registry "podrun.io/podrun/internal/image"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/images/unpacked"
)

// Pulling implements runtime.Images.
func (p *Puller) Pulling(ref string) (pod.Progress, bool) {
	full, err := unpacked.FullName(ref)
	if err != nil {
		return pod.Progress{}, false
	}
	return p.pulls.Progress(full)
}

// metering returns a wrapper for image handlers that reports to meter which layers an image has,
// and which of them are complete: layers that are already present are never fetched. A manifest or a
// config that is too big is not fetched: the handlers would decode it.
func metering(meter *registry.Meter) func(images.Handler) images.Handler {
	return func(next images.Handler) images.Handler {
		return images.HandlerFunc(func(ctx context.Context, desc imagespec.Descriptor) ([]imagespec.Descriptor, error) {
			if err := unpacked.CheckSize(desc); err != nil {
				return nil, err
			}
			children, err := next.Handle(ctx, desc)
			if err != nil {
				return children, err
			}
			meter.Done(desc.Digest.String())
			for _, child := range children {
				if images.IsLayerType(child.MediaType) {
					meter.Expect(child.Digest.String(), child.Size)
				}
			}
			return children, nil
		})
	}
}

// metered is a resolver whose fetchers report the fetched bytes to a meter.
type metered struct {
	remotes.Resolver
	meter *registry.Meter
}

// Fetcher implements remotes.Resolver.
func (m metered) Fetcher(ctx context.Context, ref string) (remotes.Fetcher, error) {
	fetcher, err := m.Resolver.Fetcher(ctx, ref)
	if err != nil {
		return nil, err
	}
	return remotes.FetcherFunc(func(ctx context.Context, desc imagespec.Descriptor) (io.ReadCloser, error) {
		from, err := fetcher.Fetch(ctx, desc)
		if err != nil {
			return nil, err
		}
		one := meteredBlob{ReadCloser: from, meter: m.meter, digest: desc.Digest.String()}
		if seeker, ok := from.(io.Seeker); ok {
			return &seekableBlob{one, seeker}, nil
		}
		return &one, nil
	}), nil
}

// SetOptions implements remotes.ResolverWithOptions, for example for the number of parallel
// downloads.
func (m metered) SetOptions(options ...transfer.ImageResolverOption) {
	if r, ok := m.Resolver.(remotes.ResolverWithOptions); ok {
		r.SetOptions(options...)
	}
}

// meteredBlob is the stream of a blob, which reports its position to the meter.
type meteredBlob struct {
	io.ReadCloser
	meter  *registry.Meter
	digest string
	at     int64
}

// Read implements io.Reader.
func (b *meteredBlob) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.at += int64(n)
	b.meter.At(b.digest, b.at, n)
	return n, err
}

// seekableBlob is a meteredBlob that can skip the part that is already present.
type seekableBlob struct {
	meteredBlob
	seeker io.Seeker
}

// Seek implements io.Seeker.
func (b *seekableBlob) Seek(offset int64, whence int) (int64, error) {
	n, err := b.seeker.Seek(offset, whence)
	if err == nil {
		b.at = n
		b.meter.At(b.digest, n, 0)
	}
	return n, err
}
