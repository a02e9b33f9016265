package pull_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"

	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
	"podrun.io/podrun/internal/runtime/containerd/images"
)

// silentRegistry has one image. It never sends its layers; asked gets a value for each request for one.
func silentRegistry(t *testing.T, layers int, asked chan<- string) (ref string) {
	t.Helper()
	contents := map[string][]byte{}
	add := func(mediaType string, v any) imagespec.Descriptor {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		d := imagespec.Descriptor{MediaType: mediaType, Size: int64(len(text))}
		if err := json.Unmarshal(fmt.Appendf(nil, `"sha256:%x"`, sha256.Sum256(text)), &d.Digest); err != nil {
			t.Fatal(err)
		}
		contents[d.Digest.String()] = text
		return d
	}
	config := imagespec.Image{Platform: imagespec.Platform{OS: "linux", Architecture: goruntime.GOARCH}}
	manifest := imagespec.Manifest{MediaType: imagespec.MediaTypeImageManifest}
	manifest.SchemaVersion = 2
	for i := range layers {
		layer := add(imagespec.MediaTypeImageLayer, fmt.Sprint("layer ", i))
		config.RootFS.Type = "layers"
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, layer.Digest)
		manifest.Layers = append(manifest.Layers, layer)
		contents[layer.Digest.String()] = nil
	}
	manifest.Config = add(imagespec.MediaTypeImageConfig, config)
	tagged := add(manifest.MediaType, manifest)
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		name := filepath.Base(q.URL.Path)
		if name == "1" {
			name = tagged.Digest.String()
		}
		if contents[name] == nil {
			asked <- name
			select {
			case <-q.Context().Done():
			case <-ended:
			}
			return
		}
		if strings.Contains(q.URL.Path, "/manifests/") {
			w.Header().Set("Content-Type", tagged.MediaType)
		}
		w.Header().Set("Docker-Content-Digest", name)
		http.ServeContent(w, q, "", time.Time{}, bytes.NewReader(contents[name]))
	}))
	t.Cleanup(func() { close(ended); server.Close() })
	return strings.TrimPrefix(server.URL, "http://") + "/team/silent:1"
}

// TestSilentRegistry checks that a registry that sends nothing does not stop the pulls from others.
func TestSilentRegistry(t *testing.T) {
	d := daemontest.Embedded(t)
	s := connect(t, d)
	h, _ := newHub(t, d, s)
	asked := make(chan string, 100)
	ref := silentRegistry(t, 6, asked)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.Pull(ctx, ref)
		done <- err
	}()
	for range 3 {
		select {
		case <-asked:
		case err := <-done:
			t.Fatal(err)
		}
	}
	soon, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	if _, err := s.Pull(soon, h.ref); err != nil {
		t.Errorf("another image: %v", err)
	}
	if n := len(asked); n > 0 {
		t.Errorf("%d more layers are fetched at the same time", n)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := s.DropFetched(t.Context()); err != nil {
		t.Error(err)
	}
}

// bothPull runs a test with pulls by containerd, and with pulls by podrun.
func bothPull(t *testing.T, test func(t *testing.T, d daemontest.Daemon, s *images.Store)) {
	for _, who := range []string{"containerd", "podrun"} {
		t.Run(who, func(t *testing.T) {
			d := daemontest.Embedded(t)
			o := options(t, d)
			o.HostsDir = filepath.Join(t.TempDir(), "hosts")
			if who == "podrun" { // which has settings that containerd does not have
				if err := os.MkdirAll(filepath.Join(o.HostsDir, "images.example"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			test(t, d, connectWith(t, d, "", o))
		})
	}
}

// TestSignaturesAreNotShown checks that an error does not show the signature of the URL that a registry has redirected
// to, with which others could read the image.
func TestSignaturesAreNotShown(t *testing.T) {
	bothPull(t, func(t *testing.T, d daemontest.Daemon, s *images.Store) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.URL.RawQuery == "" {
				http.Redirect(w, q, q.URL.Path+"?X-Signature=f00d", http.StatusTemporaryRedirect)
				return
			}
			w.WriteHeader(http.StatusForbidden)
		}))
		defer server.Close()
		_, err := s.Pull(t.Context(), strings.TrimPrefix(server.URL, "http://")+"/team/image:1")
		const want = "/v2/team/image/manifests/1?X-Signature=***: 403 Forbidden"
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "f00d") {
			t.Error(err)
		}
		var permanent *runtime.PermanentError
		if !errors.As(err, &permanent) || !strings.Contains(permanent.Fix, "credentials") {
			t.Errorf("%#v", err)
		}
	})
}

// TestEndlessToken checks that neither containerd nor podrun reads an answer with a token of any length.
func TestEndlessToken(t *testing.T) {
	const most = 64 << 20 // with which both could be killed, but not the machine
	bothPull(t, func(t *testing.T, d daemontest.Daemon, s *images.Store) {
		sent := make(chan int, 100)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.URL.Path != "/token" {
				w.Header().Set("WWW-Authenticate", fmt.Sprintf("Bearer realm=%q,service=hub", "http://"+q.Host+"/token"))
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			text := []byte(`{"token":"` + strings.Repeat("x", 1<<20))
			n, err := 0, error(nil)
			for n < most && err == nil {
				n += len(text)
				_, err = w.Write(text)
				text = bytes.Repeat([]byte("x"), 1<<20)
			}
			sent <- n
		}))
		defer server.Close()
		text := failing(t, s, strings.TrimPrefix(server.URL, "http://")+"/team/busybox:1")
		if n := <-sent; n >= most || !strings.Contains(text, "longer than 1048576 bytes") || len(text) > 1000 {
			t.Errorf("%d bytes were read: %.1000s", n, text)
		}
	})
}

// TestEncodings checks that answers are refused that a registry has encoded in a way that takes far more memory to decode
// than they have bytes, or several times, and that it may compress them.
func TestEncodings(t *testing.T) {
	zipped := func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }
	packed := func(w io.Writer) io.WriteCloser {
		z, err := zstd.NewWriter(w)
		if err != nil {
			t.Fatal(err)
		}
		return z
	}
	bothPull(t, func(t *testing.T, d daemontest.Daemon, s *images.Store) {
		h, _ := newHub(t, d, s)
		encode := func(name string, with ...func(w io.Writer) io.WriteCloser) {
			h.misbehave(func(w http.ResponseWriter, q *http.Request) bool {
				if accepted := q.Header.Get("Accept-Encoding"); strings.Contains(accepted, "zstd") {
					t.Errorf("it asks for %s", accepted)
				}
				answer := httptest.NewRecorder()
				h.inner.ServeHTTP(answer, q)
				maps.Copy(w.Header(), answer.Header())
				if text := answer.Body.Bytes(); q.Method == http.MethodGet && len(text) > 0 {
					for _, one := range with {
						var out bytes.Buffer
						z := one(&out)
						_, err := z.Write(text)
						if err := errors.Join(err, z.Close()); err != nil {
							t.Error(err)
						}
						text = out.Bytes()
					}
					answer.Body = bytes.NewBuffer(text)
					w.Header().Set("Content-Encoding", name)
					w.Header().Set("Content-Length", fmt.Sprint(len(text)))
				}
				w.WriteHeader(answer.Code)
				_, _ = w.Write(answer.Body.Bytes())
				return true
			})
		}
		const refused = "an encoding that it was not asked for"
		encode("zstd", packed)
		if got := failing(t, s, h.ref); !strings.Contains(got, refused) {
			t.Errorf("zstd: %s", got)
		}
		encode("gzip, GZIP", zipped, zipped)
		if got := failing(t, s, h.ref); !strings.Contains(got, refused) {
			t.Errorf("gzip twice: %s", got)
		}
		encode("gzip", zipped)
		if _, err := s.Pull(t.Context(), h.ref); err != nil {
			t.Errorf("gzip: %v", err)
		}
	})
}
