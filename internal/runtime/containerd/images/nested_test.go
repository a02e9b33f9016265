package images

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// TestBigLists checks that an archive is refused if containerd's import would take much more memory, work or disk for
// its lists and files than the archive has bytes.
func TestBigLists(t *testing.T) {
	t.Parallel()
	const config, layer = `{"Config":"c"}`, `"l"`
	text := []byte("[" + strings.Repeat("{},", 2<<20) + "{}]")
	many := func(before, text, after string, n int) []byte {
		return []byte(before + strings.Repeat(text+",", n) + text + after)
	}
	long := strings.Repeat("x", 500_000)
	for name, c := range map[string]struct {
		headers []tar.Header
		text    []byte
		want    string
	}{
		"manifest":   {[]tar.Header{{Name: "manifest.json"}}, text, "manifest.json of the archive has 6291460 bytes; the maximum is 4194304"},
		"layout":     {[]tar.Header{{Name: "./oci-layout"}}, text, "has 6291460 bytes; the maximum is 4194304"},
		"index":      {[]tar.Header{{Name: "index.json"}}, text, "has 6291460 bytes; the maximum is 4194304"},
		"images":     {[]tar.Header{{Name: "manifest.json"}}, many("[", config, "]", 1000), "more than 1000 images, or 100000 tags and layers"},
		"tags":       {[]tar.Header{{Name: "./manifest.json"}}, many(`[{"Config":"c","RepoTags":[`, `"a"`, `]}]`, 1_000_000), "more than 1000 images, or 100000 tags"},
		"layers":     {[]tar.Header{{Name: "manifest.json"}}, many(`[{"Config":"c","Layers":[`, layer, `]}]`, 100_000), "more than 1000 images, or 100000 tags"},
		"long names": {slices.Repeat([]tar.Header{{Name: long, Linkname: "c", Typeflag: tar.TypeSymlink}}, 9), nil, "their names more than 4194304 bytes"},
		"long links": {slices.Repeat([]tar.Header{{Name: "c", Linkname: long, Typeflag: tar.TypeSymlink}}, 9), nil, "their names more than 4194304 bytes"},
		"many names": {slices.Repeat([]tar.Header{{Name: "c", Typeflag: tar.TypeDir}}, 100_001), nil, "more than 100000 files"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, err := local.NewStore(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			var archive bytes.Buffer
			w := tar.NewWriter(&archive)
			write := func(h tar.Header, text []byte) error {
				h.Mode, h.Size = 0o600, int64(len(text))
				err := w.WriteHeader(&h)
				_, failed := w.Write(text)
				return errors.Join(err, failed)
			}
			layout := []byte(`{"imageLayoutVersion":"1.0.0"}`)
			err = write(tar.Header{Name: "oci-layout"}, layout)
			for _, h := range c.headers {
				err = errors.Join(err, write(h, c.text))
			}
			if err := errors.Join(err, w.Close()); err != nil {
				t.Fatal(err)
			}
			_, err = readArchive(t.Context(), store, &archive)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%.500v", err)
			}
		})
	}
}

// TestSparseFile checks that an archive is refused that has a file of any size without content.
func TestSparseFile(t *testing.T) {
	t.Parallel()
	store, err := local.NewStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const size = 20 << 20
	records := ""
	for name, value := range map[string]string{"size": fmt.Sprint(size), "numblocks": "1", "map": fmt.Sprintf("%d,0", size)} {
		record := " GNU.sparse." + name + "=" + value + "\n"
		records += fmt.Sprint(len(record)+2) + record
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	header := tar.Header{Name: "x", Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(records))}
	err = w.WriteHeader(&header)
	_, failed := w.Write([]byte(records))
	if err := errors.Join(err, failed, w.WriteHeader(&tar.Header{Name: "blob"}), w.Close()); err != nil {
		t.Fatal(err)
	}
	// tar.Writer writes no such records itself.
	block, sum := archive.Bytes()[:512], 0
	block[156] = tar.TypeXHeader
	copy(block[148:], "        ")
	for _, b := range block {
		sum += int(b)
	}
	copy(block[148:], fmt.Sprintf("%06o\x00 ", sum))
	if _, err = readArchive(t.Context(), store, &archive); err == nil || !strings.Contains(err.Error(), "is a sparse file") {
		t.Error(err)
	}
}
