package images

import (
	"archive/tar"
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/plugins/content/local"
)

// FuzzAccounts looks up users in images' account files. A user that is found must have numbers that
// runc accepts, from the requested entry or from the requested number itself: a number that is out
// of range must not become another one, such as root's.
func FuzzAccounts(f *testing.F) {
	const passwd = "root:x:0:0::/:\nworker:x:7:8::/:\n# a comment\n\n:x:9:9\n"
	const group = "root:x:0:\ncrew:x:11:\nmore:x:12:worker,other\n"
	for _, name := range []string{"", "worker", "worker:crew", "7", "7:8", "0", "nobody", "-1", "4294967296", ":", "worker:", "#"} {
		f.Add([]byte(passwd), []byte(group), name)
	}
	f.Add([]byte("worker:x:4294967296:0::/:\n"), []byte{}, "worker")
	f.Add([]byte("worker:x:7:4294967296::/:\n"), []byte{}, "worker")
	f.Add([]byte("worker:x:-1:-1::/:\n"), []byte{}, "worker")
	f.Add([]byte("worker:x:7:8::/:\n"), []byte("more:x:4294967296:worker\n"), "worker:more")
	f.Add(bytes.Repeat([]byte("worker"), 20000), []byte{}, "worker")
	f.Fuzz(func(t *testing.T, passwd, group []byte, name string) {
		root := t.TempDir()
		if err := os.Mkdir(filepath.Join(root, "etc"), 0o700); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string][]byte{"passwd": passwd, "group": group} {
			if err := os.WriteFile(filepath.Join(root, "etc", file), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		found, err := accounts(root).find(name)
		if err != nil {
			return
		}
		for _, id := range append([]uint32{found.UID, found.GID}, found.AdditionalGids...) {
			if id > math.MaxInt32 {
				t.Errorf("user %q has the number %d", name, id)
			}
		}
		owner, _, _ := strings.Cut(name, ":")
		if want := strconv.FormatUint(uint64(found.UID), 10); owner != want && !names(passwd, owner, want) && strings.TrimLeft(owner, "0") != strings.TrimLeft(want, "0") {
			t.Errorf("user %q is %s, as no account says: %q", name, want, passwd)
		}
		if text := userText("sha256:0", found); len(text) > 4096 {
			t.Errorf("a label of %d bytes", len(text))
		}
	})
}

// names reports whether there is an entry with that name and number.
func names(passwd []byte, name, number string) bool {
	for line := range strings.Lines(string(passwd)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) > 2 && fields[0] == name && strings.TrimLeft(fields[2], "0") == strings.TrimLeft(number, "0") && fields[2] != "" {
			return true
		}
	}
	return false
}

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
			if full, err := fullName(i.Name); err == nil && full != i.Name {
				t.Errorf("%q is looked for as %q", i.Name, full)
			}
			_ = imageID(i)
		}
	})
}

// FuzzSignalName checks that SignalName returns a name that it has returned unchanged.
func FuzzSignalName(f *testing.F) {
	for _, s := range []string{"", "9", "SIGTERM", "term", "sigrtmin+3", "-1", "99999999999999999999", "sig"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name := SignalName(s)
		if again := SignalName(name); again != name {
			t.Errorf("%q is %q, and that is %q", s, name, again)
		}
	})
}
