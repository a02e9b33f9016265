package images

import (
	"archive/tar"
	"bytes"
	"testing"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/plugins/content/local"

	"podrun.io/podrun/internal/runtime/containerd/images/unpacked"
)

// FuzzArchive reads image archives, as far as podrun reads them itself, into a content store of the
// test. The images that are found must have names by which they can be found again.
func FuzzArchive(f *testing.F) {
	const layout, none = `{"imageLayoutVersion":"1.0.0"}`, "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	index := func(annotations string) string {
		return `{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"` + none +
			`","size":0,"annotations":` + annotations + `}]}`
	}
	for _, text := range []string{
		index(`{"org.opencontainers.image.ref.name":"busybox"}`), index(`{"io.containerd.image.name":"docker.io/library/a:1"}`),
		index(`{"org.opencontainers.image.ref.name":"UPPER CASE"}`), index(`null`), `{"manifests":[null,{}]}`, `{}`, `null`, "[",
	} {
		f.Add(layout, text, "", "")
	}
	f.Add("", "", `[{"Config":"c.json","RepoTags":["busybox:latest",""],"Layers":["l.tar"]}]`, `{"architecture":"amd64","os":"linux","rootfs":{"diff_ids":["`+none+`"]}}`)
	f.Add("", "", `[{"Config":"../c.json","RepoTags":null,"Layers":null},null]`, `{}`)
	f.Fuzz(func(t *testing.T, layout, index, manifest, config string) {
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		for _, one := range [][2]string{{"oci-layout", layout}, {"index.json", index}, {"manifest.json", manifest}, {"c.json", config}, {"l.tar", ""}} {
			if one[1] == "" && one[0] != "l.tar" {
				continue
			}
			if err := w.WriteHeader(&tar.Header{Name: one[0], Mode: 0o600, Size: int64(len(one[1])), Typeflag: tar.TypeReg}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(one[1])); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		store, err := local.NewStore(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		ctx := namespaces.WithNamespace(t.Context(), "fuzz")
		found, err := readArchive(ctx, store, &archive)
		if err != nil {
			return
		}
		for _, i := range found {
			if i.Name == "" {
				t.Error("an image without a name")
			}
			if full, err := unpacked.FullName(i.Name); err == nil && full != i.Name {
				t.Errorf("%q is looked for as %q", i.Name, full)
			}
			_ = unpacked.ImageID(i)
		}
	})
}
