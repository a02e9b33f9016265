package testimage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// file is an entry of an image's only layer: a directory, a symbolic link or a regular file.
type file struct {
	path string
	dir  bool
	link string
	mode int64
	data []byte
	// node is the tar type of a FIFO or a device; 0 for other files. major and minor are the device
	// numbers.
	node         byte
	major, minor int64
}

// image returns the image, which has one layer.
func (r *recipe) image() (v1.Image, error) {
	content, err := layerTar(r.files)
	if err != nil {
		return nil, err
	}
	manifest, config, layerType := types.OCIManifestSchema1, types.OCIConfigJSON, types.OCILayer
	if r.docker {
		manifest, config, layerType = types.DockerManifestSchema2, types.DockerConfigJSON, types.DockerLayer
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(layerType), tarball.WithCompressionLevel(gzip.BestSpeed), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, manifest), config), layer)
	if err != nil {
		return nil, err
	}
	full, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	full = full.DeepCopy()
	full.OS, full.Architecture, full.Config = "linux", runtime.GOARCH, r.config
	return mutate.ConfigFile(img, full)
}

// layerTar writes files, and their parent directories, as a tar without times.
func layerTar(files []file) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	made := map[string]bool{}
	for _, f := range withParents(files) {
		h := &tar.Header{Name: strings.TrimPrefix(path.Clean(f.path), "/"), Mode: f.mode, Format: tar.FormatPAX}
		switch {
		case f.dir:
			if made[h.Name] {
				continue
			}
			made[h.Name] = true
			h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		case f.link != "":
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.link, 0o777
		case f.node != 0:
			h.Typeflag, h.Devmajor, h.Devminor = f.node, f.major, f.minor
		default:
			h.Typeflag, h.Size = tar.TypeReg, int64(len(f.data))
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// withParents puts the parent directories of every file before it. Directories that the caller
// requested come first, so that their modes are used.
func withParents(files []file) []file {
	var out []file
	for _, f := range files {
		var above []file
		for dir := path.Dir(path.Clean(f.path)); dir != "/" && dir != "."; dir = path.Dir(dir) {
			above = append(above, file{path: dir, dir: true, mode: 0o755})
		}
		slices.Reverse(above)
		out = append(append(out, above...), f)
	}
	return out
}

// writeDocker writes img as `docker save` does.
func writeDocker(path string, tag name.Tag, img v1.Image) error {
	return create(path, func(w io.Writer) error { return tarball.Write(tag, img, w) })
}

// writeOCI writes img as a tar of an OCI layout whose index has its name.
func writeOCI(path string, tag name.Tag, img v1.Image) error {
	entries, manifest, err := blobs(img)
	if err != nil {
		return err
	}
	manifest.Annotations = map[string]string{
		"io.containerd.image.name":          tag.String(),
		"org.opencontainers.image.ref.name": tag.TagStr(),
	}
	index, err := json.Marshal(v1.IndexManifest{
		SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{manifest},
	})
	if err != nil {
		return err
	}
	entries = append([]blob{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{"index.json", index},
	}, entries...)
	return create(path, func(out io.Writer) error {
		w := tar.NewWriter(out)
		for _, e := range entries {
			h := &tar.Header{
				Name:     e.name,
				Mode:     0o644,
				Size:     int64(len(e.data)),
				Typeflag: tar.TypeReg,
				Format:   tar.FormatPAX,
			}
			if err := w.WriteHeader(h); err != nil {
				return err
			}
			if _, err := w.Write(e.data); err != nil {
				return err
			}
		}
		return w.Close()
	})
}

// blob is a file of an OCI layout.
type blob struct {
	name string
	data []byte
}

// blobs returns img's manifest, config and layers as files of a layout, and the manifest's
// descriptor.
func blobs(img v1.Image) ([]blob, v1.Descriptor, error) {
	raw, err := img.RawManifest()
	if err != nil {
		return nil, v1.Descriptor{}, err
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return nil, v1.Descriptor{}, err
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, v1.Descriptor{}, err
	}
	contents := [][]byte{raw, config}
	for _, layer := range layers {
		r, err := layer.Compressed()
		if err != nil {
			return nil, v1.Descriptor{}, err
		}
		data, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			return nil, v1.Descriptor{}, err
		}
		contents = append(contents, data)
	}
	out := make([]blob, len(contents))
	for i, data := range contents {
		h, _, err := v1.SHA256(bytes.NewReader(data))
		if err != nil {
			return nil, v1.Descriptor{}, err
		}
		out[i] = blob{"blobs/sha256/" + h.Hex, data}
	}
	h, size, err := v1.SHA256(bytes.NewReader(raw))
	return out, v1.Descriptor{
		MediaType: types.OCIManifestSchema1, Digest: h, Size: size,
		Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH},
	}, err
}

// create creates a file whose content write writes.
func create(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
