package testimage

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

const ref = "podrun.example/team/box:1"

func build(t *testing.T, opts ...Option) string {
	t.Helper()
	if _, err := exec.LookPath("busybox"); err != nil {
		t.Skip("no busybox on PATH")
	}
	path, err := Busybox(t.TempDir(), ref, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// untar extracts a tar of plain files.
func untar(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dir := t.TempDir()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, h.Name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// ociImage reads the only image of an OCI archive, and what the index says of it.
func ociImage(t *testing.T, path string) (v1.Image, v1.Descriptor) {
	t.Helper()
	index, err := layout.ImageIndexFromPath(untar(t, path))
	if err != nil {
		t.Fatal(err)
	}
	m, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Manifests) != 1 {
		t.Fatalf("%d images in the index, want 1", len(m.Manifests))
	}
	img, err := index.Image(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return img, m.Manifests[0]
}

func TestOCIArchiveNamesItsImage(t *testing.T) {
	t.Parallel()
	_, desc := ociImage(t, build(t))
	want := map[string]string{"io.containerd.image.name": ref, "org.opencontainers.image.ref.name": "1"}
	if diff := cmp.Diff(want, desc.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	options := []Option{
		Entrypoint("/bin/sh", "-c"), Cmd("true"), Env("A=1", "B=2"),
		User("nobody"), WorkingDir("/srv/app"), StopSignal("SIGUSR1"),
	}
	docker := append([]Option{DockerArchive()}, options...)
	oci, _ := ociImage(t, build(t, options...))
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	fromDocker, err := tarball.ImageFromPath(build(t, docker...), &tag)
	if err != nil {
		t.Fatal(err)
	}
	for kind, img := range map[string]v1.Image{"oci": oci, "docker": fromDocker} {
		file, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		got, _ := json.Marshal(file.Config)
		want := `{"Cmd":["true"],"Entrypoint":["/bin/sh","-c"],` +
			`"Env":["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin","A=1","B=2"],` +
			`"User":"nobody","WorkingDir":"/srv/app","StopSignal":"SIGUSR1"}`
		if string(got) != want {
			t.Errorf("%s: config\n got %s\nwant %s", kind, got, want)
		}
	}
}

func TestLayer(t *testing.T) {
	t.Parallel()
	img, _ := ociImage(t, build(t, WorkingDir("/srv/app"), File("/www/index.html", 0o640, []byte("hello"))))
	content := mutate.Extract(img)
	defer content.Close()
	got := map[string]tar.Header{}
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got[filepath.Clean(h.Name)] = *h
	}
	for _, want := range []tar.Header{
		{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755},
		{Name: "bin/sh", Typeflag: tar.TypeSymlink, Mode: 0o777, Linkname: "busybox"},
		{Name: "bin/httpd", Typeflag: tar.TypeSymlink, Mode: 0o777, Linkname: "busybox"},
		{Name: "tmp", Typeflag: tar.TypeDir, Mode: 0o1777},
		{Name: "srv", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "srv/app", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "www/index.html", Typeflag: tar.TypeReg, Mode: 0o640},
	} {
		h := got[want.Name]
		if h.Typeflag != want.Typeflag || h.Mode != want.Mode || h.Linkname != want.Linkname {
			t.Errorf("%s: type %c mode %o link %q, want %c %o %q",
				want.Name, h.Typeflag, h.Mode, h.Linkname, want.Typeflag, want.Mode, want.Linkname)
		}
	}
}

func TestSameInputSameBytes(t *testing.T) {
	t.Parallel()
	read := func(path string) []byte {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	if !bytes.Equal(read(build(t)), read(build(t))) {
		t.Error("two builds differ")
	}
}

func TestProgram(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "hello")
	if err := os.WriteFile(program, []byte("#!"), 0o755); err != nil {
		t.Fatal(err)
	}
	path, err := Program(t.TempDir(), ref, program)
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(path) != "box-1.tar" {
		t.Errorf("archive is called %s, want box-1.tar", filepath.Base(path))
	}
	img, _ := ociImage(t, path)
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/bin/hello"}, file.Config.Entrypoint); diff != "" {
		t.Errorf("entrypoint (-want +got):\n%s", diff)
	}
}

func TestBadReference(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(program, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Program(t.TempDir(), "Not A Reference", program); err == nil {
		t.Error("a bad reference was accepted")
	}
}
