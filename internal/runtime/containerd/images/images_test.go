package images_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
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

func TestLoadAndResolve(t *testing.T) {
	for name, start := range daemontest.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := connect(t, start(t))
			for _, opts := range [][]testimage.Option{nil, {testimage.DockerArchive()}} {
				got := daemontest.Load(t, s, daemontest.Archive(t, "busybox:1", opts...))
				if !slices.Equal(got, []string{"docker.io/library/busybox:1"}) {
					t.Errorf("%q", got)
				}
				first, err := s.Resolve(t.Context(), "busybox:1")
				if err != nil || first.Name != "docker.io/library/busybox:1" || !strings.HasPrefix(first.ID, "docker.io/library/busybox@sha256:") {
					t.Errorf("%+v, %v", first, err)
				}
				for _, ref := range []string{"docker.io/library/busybox:1", "library/busybox:1", "docker.io/busybox:1"} {
					if i, err := s.Resolve(t.Context(), ref); err != nil || i != first {
						t.Errorf("%s: %+v, %v", ref, i, err)
					}
				}
			}
			loaded, err := s.Resolve(t.Context(), "busybox:1")
			if err != nil {
				t.Fatal(err)
			}
			_, digest, _ := strings.Cut(loaded.ID, "@")
			if got, err := s.Resolve(t.Context(), "busybox:9@"+digest); err != nil || got != loaded {
				t.Errorf("by digest: %+v, %v", got, err)
			}
			for _, ref := range []string{"busybox", "busybox:2", "other:1", "Not A Name", "other@" + digest, "busybox@sha256:" + strings.Repeat("0", 64)} {
				if _, err := s.Resolve(t.Context(), ref); !errors.Is(err, runtime.ErrNotFound) {
					t.Errorf("%s: %v", ref, err)
				}
			}
			if _, err := s.Load(t.Context(), strings.NewReader("no archive")); err == nil {
				t.Error("garbage was loaded")
			}
		})
	}
}

// TestResolveShortName resolves an image that another client stored under a name that is not
// normalised.
func TestResolveShortName(t *testing.T) {
	d := daemontest.Embedded(t)
	s := connect(t, d)
	daemontest.Load(t, s, daemontest.Archive(t, "busybox:1"))
	ctx, c := d.Client(t)
	i, err := c.ImageService().Get(ctx, "docker.io/library/busybox:1")
	if err != nil {
		t.Fatal(err)
	}
	i.Name = "short:1"
	if _, err := c.ImageService().Create(ctx, i); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Resolve(t.Context(), "short:1"); err != nil || got.Name != "short:1" {
		t.Errorf("%+v, %v", got, err)
	}
}

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
			pulled, err := s.Pull(t.Context(), ref)
			if err != nil {
				t.Fatal(err)
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

func TestUserThatIsNotThere(t *testing.T) {
	s := connect(t, daemontest.Embedded(t))
	f, err := os.Open(daemontest.Archive(t, "busybox:1", testimage.User("stranger")))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := s.Load(t.Context(), f); err == nil || !strings.Contains(err.Error(), `"stranger"`) {
		t.Errorf("error %v", err)
	}
}
