package images_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"podrun.io/podrun/internal/runtime/containerd/daemontest"
	"podrun.io/podrun/internal/test/testimage"
)

// rewritten copies an archive with each of its files as change returns it; change returns nil to
// leave a file out.
func rewritten(t *testing.T, path string, change func(name string, data []byte) []byte) string {
	t.Helper()
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var out bytes.Buffer
	from, to := tar.NewReader(in), tar.NewWriter(&out)
	for {
		h, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(from)
		if err != nil {
			t.Fatal(err)
		}
		if data = change(h.Name, data); data == nil {
			continue
		}
		h.Size = int64(len(data))
		if err := to.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := to.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	path = filepath.Join(t.TempDir(), "rewritten.tar")
	if err := errors.Join(to.Close(), os.WriteFile(path, out.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestLoadBadArchive checks that an archive with an incomplete image, or with an image for another
// platform, is reported, and that the existing image of that name is unchanged.
func TestLoadBadArchive(t *testing.T) {
	for name, start := range daemontest.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := connect(t, start(t))
			daemontest.Load(t, s, daemontest.Archive(t, "busybox:1"))
			before, err := s.ListImages(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			other := daemontest.Archive(t, "busybox:1", testimage.File("other", 0o644, []byte("other")))
			for _, c := range []struct {
				what, want string
				change     func(string, []byte) []byte
			}{
				{"no layer", "busybox:1", func(_ string, data []byte) []byte {
					if len(data) > 100_000 {
						return nil
					}
					return data
				}},
				{"a changed layer", "busybox:1", func(_ string, data []byte) []byte {
					if len(data) > 100_000 {
						data[len(data)/2] ^= 1
					}
					return data
				}},
				// Last: its layer is whole, and there for the others until it is collected.
				{"for another machine", "has no content for platform linux/", func(name string, data []byte) []byte {
					if name == "index.json" {
						at := bytes.Index(data, []byte(`"architecture":"`)) + len(`"architecture":"`)
						return slices.Concat(data[:at], []byte("s390x"), data[at+bytes.IndexByte(data[at:], '"'):])
					}
					return data
				}},
			} {
				f, err := os.Open(rewritten(t, other, c.change))
				if err != nil {
					t.Fatal(err)
				}
				names, err := s.Load(t.Context(), f)
				f.Close()
				if err == nil || len(names) > 0 || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: %q, %v", c.what, names, err)
				}
				after, err := s.ListImages(t.Context())
				if err != nil || !slices.Equal(before, after) {
					t.Errorf("%s: %+v, %v; before it %+v", c.what, after, err, before)
				}
			}
			if _, err := s.Resolve(t.Context(), "busybox:1"); err != nil {
				t.Error(err)
			}
			if names := daemontest.Load(t, s, other); !slices.Equal(names, []string{"docker.io/library/busybox:1"}) {
				t.Errorf("%q", names)
			}
			if after, err := s.ListImages(t.Context()); err != nil || len(after) != 1 || after[0].ID == before[0].ID {
				t.Errorf("%+v, %v", after, err)
			}
		})
	}
}
