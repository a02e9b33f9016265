// Package decompress reads compressed layers and archives of images, which are untrusted, with a bounded amount of
// memory. It does not bound how much comes out.
package decompress

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/typeurl/v2"
	"github.com/klauspost/compress/zstd"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
)

// maxWindow is the maximum size in bytes of the window of a zstd frame, that is how much of the output the reader has
// to keep in memory: as with zstd's own program, which so reads what it writes at all levels. containerd alone accepts
// 512 MiB and keeps twice that, for a layer of a few KB.
const maxWindow = 128 << 20

// Stream returns the content of a stream, which may be compressed as containerd's layers may be.
func Stream(from io.Reader) (io.ReadCloser, error) {
	buffered := bufio.NewReader(from)
	first, err := buffered.Peek(10) // as many as containerd looks at
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch compression.DetectCompression(first) {
	case compression.Zstd:
	case compression.Gzip:
		return gzip.NewReader(buffered) // containerd would run igzip or unpigz if there is one in PATH
	default:
		return io.NopCloser(buffered), nil
	}
	z, err := zstd.NewReader(buffered, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, err
	}
	return zstdReader{z.IOReadCloser()}, nil
}

// zstdReader explains the error of a frame with too large a window.
type zstdReader struct{ io.ReadCloser }

func (r zstdReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		err = fmt.Errorf("it is compressed with a zstd window of more than %d MiB", maxWindow>>20)
	}
	return n, err
}

// Layers is a diff.Handler that decompresses layers in place of containerd's own.
func Layers(ctx context.Context, mediaType string) (diff.StreamProcessorInit, bool) {
	if kind, err := images.DiffCompression(ctx, mediaType); err != nil || kind == "" {
		return nil, false
	}
	return func(_ context.Context, from diff.StreamProcessor, _ map[string]typeurl.Any) (diff.StreamProcessor, error) {
		plain, err := Stream(from)
		if err != nil {
			return nil, err
		}
		return layer{plain}, nil
	}, true
}

// layer is a decompressed layer.
type layer struct{ io.ReadCloser }

func (layer) MediaType() string { return imagespec.MediaTypeImageLayer }
