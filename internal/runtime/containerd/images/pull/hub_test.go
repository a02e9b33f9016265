package pull_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
	"podrun.io/podrun/internal/runtime/containerd/images"
	"podrun.io/podrun/internal/test/testimage"
)

func TestMain(m *testing.M) { os.Exit(daemontest.Main(m)) }

// options returns the Options of a Store on d.
func options(t testing.TB, d daemontest.Daemon) images.Options {
	return images.Options{Dirs: d.Dirs, Log: daemontest.Log(t)}
}

// connect returns a Store. After the test it checks that containerd has nothing but images.
func connect(t testing.TB, d daemontest.Daemon) *images.Store {
	t.Helper()
	return connectWith(t, d, "", options(t, d))
}

func connectWith(t testing.TB, d daemontest.Daemon, snapshotter string, o images.Options) *images.Store {
	t.Helper()
	c, err := daemon.Connect(context.Background(), daemon.Options{Address: d.Address, Namespace: daemontest.Namespace, Snapshotter: snapshotter})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		d.NoTraces(t)
	})
	return images.New(c, o)
}

// push puts an image into the registry, through d, where it is removed again, and returns its
// digest.
func push(t *testing.T, d daemontest.Daemon, s *images.Store, ref string, opts ...testimage.Option) string {
	t.Helper()
	daemontest.Load(t, s, daemontest.Archive(t, ref, opts...))
	ctx, c := d.Client(t)
	i, err := c.ImageService().Get(ctx, ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Push(ctx, ref, i.Target); err != nil {
		t.Fatal(err)
	}
	if removed, err := s.PruneImages(t.Context()); err != nil || len(removed) != 1 {
		t.Fatalf("%q, %v", removed, err)
	}
	return i.Target.Digest.String()
}

// hub is a registry that can be made to fail.
type hub struct {
	*httptest.Server
	inner http.Handler
	ref   string // an image that it has

	mu    sync.Mutex
	asked map[string]int // requests for what a pull needs, by kind
	// between stands before the registry for the pulls; true: it has answered.
	between func(w http.ResponseWriter, r *http.Request) bool
}

// newHub starts a registry with one image that s does not have.
func newHub(t *testing.T, d daemontest.Daemon, s *images.Store, opts ...testimage.Option) (h *hub, digest string) {
	t.Helper()
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	h = &hub{inner: inner, asked: map[string]int{}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		h.mu.Lock()
		between := h.between
		for _, kind := range []string{"manifests", "blobs"} {
			if q.Method == http.MethodGet && strings.Contains(q.URL.Path, "/"+kind+"/") {
				h.asked[kind]++
			}
		}
		h.mu.Unlock()
		if between == nil || !between(w, q) {
			inner.ServeHTTP(w, q)
		}
	}))
	t.Cleanup(h.Close)
	h.ref = strings.TrimPrefix(h.URL, "http://") + "/team/busybox:1"
	digest = push(t, d, s, h.ref, opts...)
	h.asked = map[string]int{}
	return h, digest
}

func (h *hub) misbehave(between func(w http.ResponseWriter, r *http.Request) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.between = between
}

func (h *hub) count(kind string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asked[kind]
}

// failing pulls an image and returns the text of the error.
func failing(t *testing.T, s *images.Store, ref string) string {
	t.Helper()
	_, err := s.Pull(t.Context(), ref)
	var why *runtime.ReasonError
	if !errors.As(err, &why) || why.Reason != "ErrImagePull" {
		t.Fatalf("%s: %v", ref, err)
	}
	return err.Error()
}

// fixOf returns what the error of a pull tells to change; "" if a later attempt may succeed.
func fixOf(err error) string {
	var permanent *runtime.PermanentError
	if errors.As(err, &permanent) {
		return permanent.Fix
	}
	return ""
}
