package images_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/opencontainers/image-spec/identity"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
	"podrun.io/podrun/internal/runtime/containerd/images"
	"podrun.io/podrun/internal/test/testimage"
)

// twoImages loads two images that differ by a file, /which.
func twoImages(t *testing.T, s *images.Store) (evil, victim pod.Image) {
	t.Helper()
	var found []pod.Image
	for _, ref := range []string{"evil:1", "victim:1"} {
		daemontest.Load(t, s, daemontest.Archive(t, ref, testimage.File("/which", 0o644, []byte(ref))))
		i, err := s.Resolve(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, i)
	}
	return found[0], found[1]
}

// shows checks which image a volume shows.
func shows(t *testing.T, dir, want string) {
	t.Helper()
	if text, err := os.ReadFile(filepath.Join(dir, "which")); err != nil || string(text) != want {
		t.Errorf("the volume shows %q, %v; want %q", text, err, want)
	}
}

// TestVolumesOfSimilarUIDs mounts the volumes of two pods whose UIDs and volume names are the same
// text when they are joined: an author of manifests may choose both.
func TestVolumesOfSimilarUIDs(t *testing.T) {
	s := connect(t, daemontest.Embedded(t))
	evil, victim := twoImages(t, s)
	if _, err := s.Show(t.Context(), evil, "1111-my", "v"); err != nil {
		t.Fatal(err)
	}
	dir, err := s.Show(t.Context(), victim, "1111", "my-v")
	if err != nil {
		t.Fatal(err)
	}
	shows(t, dir, "victim:1")
	if err := s.Hide(t.Context(), "1111-my"); err != nil {
		t.Error(err)
	}
	if removed, err := s.PruneImages(t.Context()); err != nil || len(removed) != 1 {
		t.Errorf("removed %q, %v; want only the image that is no volume any more", removed, err)
	}
	shows(t, dir, "victim:1")
	if err := s.Hide(t.Context(), "1111"); err != nil {
		t.Error(err)
	}
}

// TestVolumeOverALeftover mounts a volume for which an interrupted mount has left a snapshot of
// another image.
func TestVolumeOverALeftover(t *testing.T) {
	d := daemontest.Embedded(t)
	s := connect(t, d)
	evil, victim := twoImages(t, s)
	interrupt(t, d, evil, "podrun-volume/1111/v")
	dir, err := s.Show(t.Context(), victim, "1111", "v")
	if err != nil {
		t.Fatal(err)
	}
	shows(t, dir, "victim:1")
	if err := s.Hide(t.Context(), "1111"); err != nil {
		t.Error(err)
	}
}

// TestVolumesOfTheFormerVersion removes volumes whose snapshot the former version of podrun
// created, one snapshot for two pods: it remains until both are removed.
func TestVolumesOfTheFormerVersion(t *testing.T) {
	d := daemontest.Embedded(t)
	s := connect(t, d)
	evil, victim := twoImages(t, s)
	interrupt(t, d, evil, "podrun-volume-1111-my-v")
	for uid, volume := range map[pod.UID]string{"1111-my": "v", "1111": "my-v"} {
		if _, err := s.Show(t.Context(), victim, uid, volume); err != nil {
			t.Fatal(err)
		}
	}
	ctx, c := d.Client(t)
	there := func() error {
		_, err := c.SnapshotService("overlayfs").Stat(ctx, "podrun-volume-1111-my-v")
		return err
	}
	if err := errors.Join(s.Hide(t.Context(), "1111-my"), there()); err != nil {
		t.Error(err)
	}
	if err := s.Hide(t.Context(), "1111"); err != nil || there() == nil {
		t.Errorf("%v; the former version's snapshot is left", err)
	}
}

// interrupt leaves a view snapshot of an image, as a Show does that is killed before it mounts it.
func interrupt(t *testing.T, d daemontest.Daemon, i pod.Image, key string) {
	t.Helper()
	ctx, c := d.Client(t)
	found, err := c.GetImage(ctx, i.Name)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := found.RootFS(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.SnapshotService("overlayfs").View(ctx, key, identity.ChainID(layers).String(),
		snapshots.WithLabels(map[string]string{"containerd.io/gc.root": "2026-01-01T00:00:00Z"}))
	if err != nil {
		t.Fatal(err)
	}
}
