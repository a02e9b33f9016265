package images_test

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"

	"podrun.io/podrun/internal/runtime/containerd/daemontest"
)

// withWindow returns content, of at most 128 KiB, in a zstd frame that needs a window of 2^log bytes.
func withWindow(log int, content []byte) []byte {
	const last = 1
	out := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, byte(log-10) << 3}
	out = append(out, binary.LittleEndian.AppendUint32(nil, uint32(last|len(content)<<3))[:3]...)
	return append(out, content...)
}

// tarOf returns an archive of files.
func tarOf(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, content := range files {
		err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))})
		if _, failed := w.Write(content); err != nil || failed != nil {
			t.Fatal(errors.Join(err, failed))
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// archiveOf returns an archive of the image window:1, which has one layer.
func archiveOf(t *testing.T, mediaType string, layer, plain []byte) []byte {
	t.Helper()
	files := map[string][]byte{}
	put := func(mediaType string, content any) imagespec.Descriptor {
		data, is := content.([]byte)
		if !is {
			var err error
			if data, err = json.Marshal(content); err != nil {
				t.Fatal(err)
			}
		}
		sum := digest.FromBytes(data)
		files["blobs/sha256/"+sum.Encoded()] = data
		return imagespec.Descriptor{MediaType: mediaType, Digest: sum, Size: int64(len(data))}
	}
	config := put(imagespec.MediaTypeImageConfig, imagespec.Image{
		Platform: imagespec.Platform{OS: "linux", Architecture: runtime.GOARCH},
		RootFS:   imagespec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(plain)}},
	})
	version := specs.Versioned{SchemaVersion: 2}
	image := put(imagespec.MediaTypeImageManifest, imagespec.Manifest{
		Versioned: version, MediaType: imagespec.MediaTypeImageManifest, Config: config,
		Layers: []imagespec.Descriptor{put(mediaType, layer)},
	})
	image.Annotations = map[string]string{"io.containerd.image.name": "docker.io/library/window:1"}
	index, err := json.Marshal(imagespec.Index{Versioned: version, Manifests: []imagespec.Descriptor{image}})
	if err != nil {
		t.Fatal(err)
	}
	files["index.json"], files["oci-layout"] = index, []byte(`{"imageLayoutVersion":"1.0.0"}`)
	return tarOf(t, files)
}

// TestLargeWindow checks that an image, or an archive of images, is refused that takes far more memory than it has
// bytes to be decompressed: by podrun, and by its own containerd, whatever the layer says that it is.
func TestLargeWindow(t *testing.T) {
	s := connect(t, daemontest.Embedded(t))
	plain := tarOf(t, map[string][]byte{"x": []byte("x")})
	load := func(archive []byte) error {
		_, err := s.Load(t.Context(), bytes.NewReader(archive))
		return err
	}
	refused := func(how string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "zstd window of more than 128 MiB") {
			t.Errorf("%s: %.500v", how, err)
		}
	}
	const docker = "application/vnd.docker.image.rootfs.diff.tar"
	for _, mediaType := range []string{imagespec.MediaTypeImageLayerZstd, imagespec.MediaTypeImageLayerGzip, docker} {
		refused(mediaType, load(archiveOf(t, mediaType, withWindow(29, plain), plain)))
	}
	accepted := archiveOf(t, imagespec.MediaTypeImageLayerZstd, withWindow(27, plain), plain)
	refused("the archive", load(withWindow(29, accepted)))
	if err := load(withWindow(27, accepted)); err != nil {
		t.Error(err)
	}
}
