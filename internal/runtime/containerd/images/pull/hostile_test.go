package pull_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	imagespec "github.com/opencontainers/image-spec/specs-go/v1"

	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
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

// TestSignaturesAreNotShown checks that an error does not show the signature of the URL that a registry has redirected
// to, with which others could read the image.
func TestSignaturesAreNotShown(t *testing.T) {
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
			s := connectWith(t, d, "", o)
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
}

// TestEndlessToken checks that neither containerd nor podrun reads an answer with a token of any length.
func TestEndlessToken(t *testing.T) {
	const most = 64 << 20 // with which both could be killed, but not the machine
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
			s := connectWith(t, d, "", o)
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
}
