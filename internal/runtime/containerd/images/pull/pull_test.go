package pull_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	containerdimages "github.com/containerd/containerd/v2/core/images"
	containerdlog "github.com/containerd/log"
	"github.com/containerd/platforms"
	"github.com/google/go-containerregistry/pkg/registry"

	"podrun.io/podrun/internal/image"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
	"podrun.io/podrun/internal/runtime/containerd/images"
	"podrun.io/podrun/internal/runtime/containerd/images/pull"
	"podrun.io/podrun/internal/runtime/trace"
	"podrun.io/podrun/internal/test/testimage"
)

func TestPull(t *testing.T) {
	for name, start := range daemontest.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
			defer server.Close()
			ref := strings.TrimPrefix(server.URL, "http://") + "/test/busybox:1"
			d := start(t)
			s := connect(t, d)
			digest := push(t, d, s, ref)
			if _, err := s.Resolve(t.Context(), ref); !errors.Is(err, runtime.ErrNotFound) {
				t.Fatalf("before the pull: %v", err)
			}
			var fetched time.Time
			began := time.Now()
			traced := trace.With(t.Context(), trace.Trace{Fetched: func(at time.Time) { fetched = at }})
			pulled, err := s.Pull(traced, ref)
			if err != nil {
				t.Fatal(err)
			}
			if fetched.Before(began) || fetched.After(time.Now()) {
				t.Errorf("the layers were fetched at %s, in a pull from %s", fetched, began)
			}
			if want := strings.TrimSuffix(ref, ":1") + "@" + digest; pulled.Name != ref || pulled.ID != want {
				t.Errorf("%+v, want %s", pulled, want)
			}
			if got, err := s.Resolve(t.Context(), ref); err != nil || got != pulled {
				t.Errorf("%+v, %v", got, err)
			}
			for bad, reason := range map[string]string{
				strings.Replace(ref, ":1", ":2", 1): "ErrImagePull", "Not A Name": "InvalidImageName", "127.0.0.1:1/none:1": "ErrImagePull",
			} {
				var why *runtime.ReasonError
				if _, err := s.Pull(t.Context(), bad); !errors.As(err, &why) || why.Reason != reason || !strings.Contains(err.Error(), bad) {
					t.Errorf("%s: %v", bad, err)
				}
			}
		})
	}
}

// TestPullAgain: another pull keeps the image's pin, and fetches layers that are not stored, only unpacked, whoever
// fetches. Until then the image cannot be saved, which the error says.
func TestPullAgain(t *testing.T) {
	d := daemontest.Embedded(t)
	own := options(t, d)
	own.HostsDir = t.TempDir()
	if err := os.Mkdir(filepath.Join(own.HostsDir, "some.example"), 0o755); err != nil {
		t.Fatal(err)
	}
	for what, o := range map[string]images.Options{"containerd": options(t, d), "podrun": own} {
		t.Run(what, func(t *testing.T) {
			s := connectWith(t, d, "", o)
			h, _ := newHub(t, d, s)
			if _, err := s.Pull(t.Context(), h.ref); err != nil {
				t.Fatal(err)
			}
			ctx, c := d.Client(t)
			i, err := c.ImageService().Get(ctx, h.ref)
			if err != nil {
				t.Fatal(err)
			}
			i.Labels = map[string]string{pull.LabelPinned: "pinned"}
			manifest, err := containerdimages.Manifest(ctx, c.ContentStore(), i.Target, platforms.Default())
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.ImageService().Update(ctx, i, "labels."+pull.LabelPinned)
			if err := errors.Join(err, c.ContentStore().Delete(ctx, manifest.Layers[0].Digest)); err != nil {
				t.Fatal(err)
			}
			var fix *runtime.PermanentError
			var out bytes.Buffer
			err = s.Save(t.Context(), []string{h.ref}, &out)
			if !errors.As(err, &fix) || errors.Is(err, runtime.ErrNotFound) || !strings.Contains(err.Error(), h.ref) || out.Len() > 0 {
				t.Errorf("saved without layers: %v, %d bytes", err, out.Len())
			}
			for range 2 { // at first its layers are fetched, then nothing
				if _, err := s.Pull(t.Context(), h.ref); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Save(t.Context(), []string{h.ref}, &out); err != nil {
				t.Error(err)
			}
			if all, err := s.ListImages(t.Context()); err != nil || len(all) != 1 || !all[0].Pinned {
				t.Errorf("%+v, %v", all, err)
			}
			if _, err := s.RemoveImage(t.Context(), h.ref, false); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPullByDigestAndMirror(t *testing.T) {
	d := daemontest.Embedded(t)
	o := options(t, d)
	o.HostsDir = t.TempDir()
	s := connectWith(t, d, "", o)
	h, digest := newHub(t, d, s)
	byDigest := strings.TrimSuffix(h.ref, ":1") + "@" + digest
	if got, err := s.Pull(t.Context(), byDigest); err != nil || got.Name != byDigest || got.ID != byDigest {
		t.Errorf("%+v, %v", got, err)
	}
	wrong := strings.Replace(byDigest, "sha256:", "sha256:0123", 1)
	if text := failing(t, s, wrong[:len(byDigest)]); !strings.Contains(text, "not found") {
		t.Errorf("another digest: %s", text)
	}
	dir := filepath.Join(o.HostsDir, "images.example")
	settings := fmt.Sprintf("server = \"https://images.example\"\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", h.URL)
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(settings), 0o600)); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Pull(t.Context(), "images.example/team/busybox:1"); err != nil || got.ID != "images.example/team/busybox@"+digest {
		t.Errorf("by a mirror: %+v, %v", got, err)
	}
	// Without its mirror the image would be another one.
	asked := h.count("manifests")
	settings = strings.Replace(settings, `["pull", "resolve"]`, `"pull"`, 1)
	if err := os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"images.example/team/busybox:1", "images.example/team/busybox:2"} {
		if text := failing(t, s, ref); !strings.Contains(text, filepath.Join(dir, "hosts.toml")) || h.count("manifests") != asked {
			t.Errorf("with invalid settings: %s", text)
		}
	}
}

func TestPullWithCredentials(t *testing.T) {
	d := daemontest.Embedded(t)
	o := options(t, d)
	file := filepath.Join(t.TempDir(), "config.json")
	o.Credentials = image.Credentials{Path: file}
	s := connectWith(t, d, "", o)
	h, _ := newHub(t, d, s)
	h.misbehave(func(w http.ResponseWriter, q *http.Request) bool {
		user, password, _ := q.BasicAuth()
		if user == "me" && password == "s3cret" {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="hub"`)
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`)
		return true
	})
	keep := func(user string) {
		t.Helper()
		text := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, strings.TrimPrefix(h.URL, "http://"), base64.StdEncoding.EncodeToString([]byte(user)))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if text := failing(t, s, h.ref); !strings.Contains(text, "no such file") {
		t.Errorf("without the file: %s", text)
	}
	keep("me:wrong")
	if text := failing(t, s, h.ref); !strings.Contains(text, "401") && !strings.Contains(text, "authorization failed") || strings.Contains(text, "wrong") {
		t.Errorf("with a wrong password: %s", text)
	}
	// A pod's own login counts before the machine's, and is its own.
	login := fmt.Appendf(nil, `{"auths":{%q:{"username":"me","password":"s3cret"}}}`, strings.TrimPrefix(h.URL, "http://"))
	if _, err := s.Pull(t.Context(), h.ref, []byte("{}"), login); err != nil {
		t.Error(err)
	}
	if text := failing(t, s, h.ref); !strings.Contains(text, "401") && !strings.Contains(text, "authorization failed") {
		t.Errorf("without the login: %s", text)
	}
	keep("me:s3cret") // and it counts at once
	if _, err := s.Pull(t.Context(), h.ref); err != nil {
		t.Error(err)
	}
}

// TestPullOnce checks that concurrent pulls of an image fetch it once.
func TestPullOnce(t *testing.T) {
	d := daemontest.Embedded(t)
	s := connect(t, d)
	h, digest := newHub(t, d, s)
	all := make(chan struct{})
	var together sync.Once
	var wanting sync.WaitGroup
	var started sync.WaitGroup
	h.misbehave(func(_ http.ResponseWriter, q *http.Request) bool {
		together.Do(func() { <-all }) // the first waits until all want it
		return false
	})
	for range 8 {
		started.Add(1)
		wanting.Go(func() {
			started.Done()
			if got, err := s.Pull(t.Context(), h.ref); err != nil || !strings.HasSuffix(got.ID, digest) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	started.Wait()
	close(all)
	wanting.Wait()
	if blobs := h.count("blobs"); blobs != 2 { // the config and the layer
		t.Errorf("%d blobs were fetched", blobs)
	}
}

// TestPullFaults checks that failures of the registry and of the network are reported with their
// own error, do no harm, and are repaired by the next pull.
func TestPullFaults(t *testing.T) {
	answer := func(code int, text string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(code)
			fmt.Fprint(w, text)
			return true
		}
	}
	// onBlobs answers for the layer and leaves all else to the registry.
	var h *hub
	onBlobs := func(do func(http.ResponseWriter)) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, q *http.Request) bool {
			if q.Method != http.MethodGet || !strings.Contains(q.URL.Path, "/blobs/") {
				return false
			}
			do(w)
			return true
		}
	}
	for name, c := range map[string]struct {
		between func(http.ResponseWriter, *http.Request) bool
		want    string
	}{
		"down":     {answer(500, "out of cheese"), "500"},
		"too many": {answer(429, `{"errors":[{"code":"TOOMANYREQUESTS","message":"slow down, friend"}]}`), "429"},
		"denied":   {answer(403, `{"errors":[{"code":"DENIED","message":"not for you"}]}`), "403"},
		"corrupt":  {onBlobs(func(w http.ResponseWriter) { fmt.Fprint(w, "garbage") }), ""},
		"changed on the way": {func(w http.ResponseWriter, q *http.Request) bool {
			if q.Method != http.MethodGet || !strings.Contains(q.URL.Path, "/blobs/") {
				return false
			}
			answer := httptest.NewRecorder()
			h.inner.ServeHTTP(answer, q)
			body := answer.Body.Bytes()
			body[len(body)/2] ^= 1
			_, _ = w.Write(body)
			return true
		}, "unexpected commit digest"},
		"cut off": {onBlobs(func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "1000000")
			fmt.Fprint(w, "begun")
			panic(http.ErrAbortHandler)
		}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := daemontest.Embedded(t)
			s := connect(t, d)
			var digest string
			h, digest = newHub(t, d, s)
			h.misbehave(c.between)
			text := failing(t, s, h.ref)
			t.Log(text)
			if !strings.Contains(text, c.want) {
				t.Errorf("no %q", c.want)
			}
			if _, err := s.Resolve(t.Context(), h.ref); !errors.Is(err, runtime.ErrNotFound) {
				t.Errorf("there all the same: %v", err)
			}
			h.misbehave(nil)
			if got, err := s.Pull(t.Context(), h.ref); err != nil || !strings.HasSuffix(got.ID, digest) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// TestPullGoesOn checks that a pull whose connection breaks in the middle of a layer continues from
// there, whether podrun or the network broke it, and that its progress is reported.
func TestPullGoesOn(t *testing.T) {
	for _, broken := range []string{"the net", "the pull"} {
		t.Run(broken, func(t *testing.T) {
			d := daemontest.Embedded(t)
			s := connect(t, d)
			big := make([]byte, 8<<20)
			_, _ = rand.NewChaCha8([32]byte{}).Read(big) // that no compression makes small
			h, digest := newHub(t, d, s, testimage.File("big", 0o644, big))
			if _, ok := s.Pulling(h.ref); ok {
				t.Error("there is a pull before there is one")
			}
			var ranges []string
			var size int
			half, goOn := make(chan struct{}), make(chan struct{})
			h.misbehave(func(w http.ResponseWriter, q *http.Request) bool {
				if q.Method != http.MethodGet || !strings.Contains(q.URL.Path, "/blobs/") {
					return false
				}
				whole, answer := q.Clone(q.Context()), httptest.NewRecorder()
				whole.Header.Del("Range") // the registry knows no open ranges
				h.inner.ServeHTTP(answer, whole)
				if answer.Body.Len() < 100_000 {
					return false // the config
				}
				ranges = append(ranges, q.Header.Get("Range"))
				if len(ranges) > 1 {
					http.ServeContent(w, q, "", time.Time{}, bytes.NewReader(answer.Body.Bytes()))
					return true
				}
				size = answer.Body.Len()
				w.Header().Set("Content-Length", fmt.Sprint(size))
				_, _ = w.Write(answer.Body.Bytes()[:size/2])
				w.(http.Flusher).Flush()
				close(half)
				select {
				case <-goOn:
				case <-q.Context().Done():
				}
				panic(http.ErrAbortHandler)
			})
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			done := make(chan error, 1)
			go func() {
				_, err := s.Pull(ctx, h.ref)
				done <- err
			}()
			<-half
			daemontest.Eventually(t, "the pull to be half-way", func() bool {
				p, ok := s.Pulling(h.ref)
				missing := int64(size/2) - p.Fetched // containerd itself writes by the mebibyte
				return ok && p.Rate > 0 && missing >= 0 && missing < 1<<20 && p.Total == int64(size) && p.Layers == 1 && p.Done == 0
			})
			if broken == "the net" {
				close(goOn)
			} else {
				giveUp()
			}
			if err := <-done; (err != nil) != (broken == "the pull") {
				t.Fatal(err)
			}
			if got, err := s.Pull(t.Context(), h.ref); err != nil || !strings.HasSuffix(got.ID, digest) {
				t.Errorf("%+v, %v", got, err)
			}
			if _, ok := s.Pulling(h.ref); ok {
				t.Error("there is a pull after its end")
			}
			var from int
			if _, err := fmt.Sscanf(ranges[len(ranges)-1], "bytes=%d-", &from); err != nil || len(ranges) != 2 || from == 0 || from > size/2 {
				t.Errorf("asked for the layer by %q; it has %d bytes", ranges, size)
			}
		})
	}
}

// TestRegistryDigest checks that a registry is asked for what its tag refers to now, without fetching it, and that
// containerd's library logs nothing. Not parallel: its logger is global.
func TestRegistryDigest(t *testing.T) {
	var logged bytes.Buffer
	was := containerdlog.L.Logger.Out
	containerdlog.L.Logger.SetOutput(&logged)
	defer containerdlog.L.Logger.SetOutput(was)
	d := daemontest.Embedded(t)
	s := connect(t, d)
	h, digest := newHub(t, d, s)
	if got, err := s.RegistryDigest(t.Context(), h.ref); got != digest || err != nil {
		t.Errorf("%s, %v, want %s", got, err, digest)
	}
	next := push(t, d, s, h.ref, testimage.File("new", 0o644, []byte("new")))
	if got, err := s.RegistryDigest(t.Context(), h.ref); got != next || err != nil || next == digest {
		t.Errorf("after a push: %s, %v, want %s", got, err, next)
	}
	if all, err := s.ListImages(t.Context()); len(all) > 0 || h.count("blobs") > 0 || err != nil {
		t.Errorf("fetched: %+v, %d blobs, %v", all, h.count("blobs"), err)
	}
	h.misbehave(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusForbidden); return true })
	for _, ref := range []string{h.ref, "127.0.0.1:1/none:1", "Not A Name"} {
		if got, err := s.RegistryDigest(t.Context(), ref); err == nil || got != "" || !strings.Contains(err.Error(), ref) {
			t.Errorf("%s: %q, %v", ref, got, err)
		}
	}
	if logged.Len() > 0 {
		t.Errorf("logged:\n%s", &logged)
	}
}
