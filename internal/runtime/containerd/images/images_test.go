package images_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
	"podrun.io/podrun/internal/runtime/containerd/images"
	"podrun.io/podrun/internal/test/testimage"
)

func TestMain(m *testing.M) { os.Exit(daemontest.Main(m)) }

// connect returns a Store. After the test it checks that containerd has nothing but images.
func connect(t testing.TB, d daemontest.Daemon) *images.Store {
	t.Helper()
	c, err := daemon.Connect(context.Background(), daemon.Options{Address: d.Address, Namespace: daemontest.Namespace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		d.NoTraces(t)
	})
	return images.New(c, images.Options{Dirs: d.Dirs, Log: daemontest.Log(t)})
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

// TestHoldImage: what is held by its digest stays, complete, when its tag comes to refer to another image.
func TestHoldImage(t *testing.T) {
	for name, start := range daemontest.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := start(t)
			s := connect(t, d)
			for _, ref := range []string{"busybox:1", "other:1"} {
				daemontest.Load(t, s, daemontest.Archive(t, ref))
			}
			first, err := s.Resolve(t.Context(), "busybox:1")
			if err != nil {
				t.Fatal(err)
			}
			_, digest, _ := strings.Cut(first.ID, "@")
			for _, ref := range []string{"busybox:1", "Not A Name", "none:1@" + digest, "busybox:1@sha256:" + strings.Repeat("0", 64)} {
				if err := s.HoldImage(t.Context(), ref); err != nil {
					t.Errorf("%s: %v", ref, err)
				}
			}
			if all, err := s.ListImages(t.Context()); err != nil || len(all) != 2 {
				t.Errorf("images: %+v, %v", all, err)
			}
			for range 2 {
				if err := s.HoldImage(t.Context(), "busybox:1@"+digest); err != nil {
					t.Error(err)
				}
			}
			daemontest.Load(t, s, daemontest.Archive(t, "busybox:1", testimage.File("new", 0o644, []byte("new"))))
			if moved, err := s.Resolve(t.Context(), "busybox:1"); err != nil || moved.ID == first.ID {
				t.Errorf("the tag: %+v, %v", moved, err)
			}
			// What nothing refers to goes, too.
			if removed, err := s.PruneImages(t.Context(), "busybox:1@"+digest); err != nil || len(removed) != 2 {
				t.Errorf("pruned: %q, %v", removed, err)
			}
			if got, err := connect(t, d).Resolve(t.Context(), "busybox:1@"+digest); err != nil || got.ID != first.ID {
				t.Errorf("by digest: %+v, %v, want %+v", got, err, first)
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

// TestUserThatIsNotThere: an image whose USER its files do not have is loaded, also in place of another one, and only who
// would run as that user gets the error.
func TestUserThatIsNotThere(t *testing.T) {
	s := connect(t, daemontest.Embedded(t))
	daemontest.Load(t, s, daemontest.Archive(t, "busybox:1"))
	daemontest.Load(t, s, daemontest.Archive(t, "busybox:1", testimage.User("stranger")))
	found, err := s.Resolve(t.Context(), "busybox:1")
	if err != nil {
		t.Fatal(err)
	}
	image, err := s.FindImage(t.Context(), found)
	if err != nil {
		t.Fatal(err)
	}
	// The layers are collected with the image that unpacked them, and are unpacked again.
	daemontest.Load(t, s, daemontest.Archive(t, "other:1", testimage.File("other", 0o644, []byte("other"))))
	if _, err := s.RemoveImage(t.Context(), "other:1", false); err != nil {
		t.Fatal(err)
	}
	if user, err := image.User(t.Context(), "1000"); err != nil || user.UID != 1000 {
		t.Errorf("by number: %+v, %v", user, err)
	}
	for range 2 {
		if user, err := image.User(t.Context(), "stranger"); err == nil || !strings.Contains(err.Error(), `no user "stranger"`) {
			t.Errorf("%+v, %v", user, err)
		}
	}
	if labels := image.UserLabels(); labels != nil {
		t.Errorf("labels %v", labels)
	}
}
