package images

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/opencontainers/go-digest"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
)

// labels are the labels of a content store's blobs.
type labels map[digest.Digest]map[string]string

func (l labels) Get(d digest.Digest) (map[string]string, error) { return l[d], nil }

func (l labels) Set(d digest.Digest, of map[string]string) error { l[d] = of; return nil }

func (l labels) Update(d digest.Digest, of map[string]string) (map[string]string, error) {
	if l[d] == nil {
		l[d] = map[string]string{}
	}
	maps.Copy(l[d], of)
	return l[d], nil
}

// TestNestedIndexes checks that a chain of indexes, each of which names the next one many times, is
// refused, and that a single index inside an index is accepted.
func TestNestedIndexes(t *testing.T) {
	t.Parallel()
	store, err := local.NewLabeledStore(t.TempDir(), labels{})
	if err != nil {
		t.Fatal(err)
	}
	put := func(kind string, v any) imagespec.Descriptor {
		t.Helper()
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		desc := imagespec.Descriptor{MediaType: kind, Digest: digest.FromBytes(data), Size: int64(len(data))}
		if err := content.WriteBlob(t.Context(), store, desc.Digest.String(), bytes.NewReader(data), desc); err != nil {
			t.Fatal(err)
		}
		return desc
	}
	nested := func(width, depth int) imagespec.Descriptor {
		at := put(imagespec.MediaTypeImageManifest, imagespec.Manifest{MediaType: imagespec.MediaTypeImageManifest})
		for range depth {
			index := imagespec.Index{MediaType: imagespec.MediaTypeImageIndex}
			for range width {
				index.Manifests = append(index.Manifests, at)
			}
			at = put(imagespec.MediaTypeImageIndex, index)
		}
		return at
	}
	if err := own(t.Context(), store, nested(30, 1)); err != nil {
		t.Error(err)
	}
	if err := own(t.Context(), store, nested(3, 2)); err != nil {
		t.Error(err)
	}
	if err := own(t.Context(), store, nested(30, 8)); err == nil || !strings.Contains(err.Error(), "more than 1000 images") {
		t.Errorf("30 to the power of 8: %v", err)
	}
}

// TestBigLists checks that an archive is refused whose own lists of its content are too big to be
// decoded.
func TestBigLists(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"manifest.json", "./oci-layout", "index.json"} {
		store, err := local.NewStore(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		text := []byte("[" + strings.Repeat("{},", 2<<20) + "{}]")
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		write := func(name string, text []byte) error {
			err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text)), Typeflag: tar.TypeReg})
			_, failed := w.Write(text)
			return errors.Join(err, failed)
		}
		layout := []byte(`{"imageLayoutVersion":"1.0.0"}`)
		if err := errors.Join(write("oci-layout", layout), write(name, text), w.Close()); err != nil {
			t.Fatal(err)
		}
		_, err = readArchive(t.Context(), store, &archive)
		if err == nil || !strings.Contains(err.Error(), "has 6291460 bytes; the maximum is 4194304") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
