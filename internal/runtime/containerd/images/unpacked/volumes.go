package unpacked

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/moby/sys/mountinfo"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/sys"
)

const (
	// labelRoot protects a snapshot from containerd's garbage collection.
	labelRoot = "containerd.io/gc.root"
	// labelShown is the label of a view snapshot that is a volume; its value is the digest of the
	// image.
	labelShown = "podrun.io/shown"
)

// shownKey returns the key of the view snapshot of a volume.
func shownKey(uid pod.UID, volume string) string {
	return "podrun-volume-" + string(uid) + "-" + volume
}

// Volumes mount images as volumes of pods. They are mounted until the pod's data is removed.
type Volumes struct {
	client *daemon.Client
	finder *Finder
	dirs   layout.Dirs
}

// NewVolumes returns the Volumes in the directories of pods.
func NewVolumes(client *daemon.Client, finder *Finder, dirs layout.Dirs) *Volumes {
	return &Volumes{client: client, finder: finder, dirs: dirs}
}

// Show implements runtime.Images.
func (v *Volumes) Show(ctx context.Context, i pod.Image, uid pod.UID, volume string) (string, error) {
	if err := layout.CheckUID(uid); err != nil {
		return "", err
	}
	if strings.ContainsAny(volume, "/\x00") || strings.Trim(volume, ".") == "" {
		return "", fmt.Errorf("volume %q cannot be a directory's name", volume)
	}
	dir := v.dirs.Revision(uid).Volume(layout.KindImage, volume)
	if mounted, err := mountinfo.Mounted(dir); mounted || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}
	ctx = v.client.Context(ctx)
	known, err := v.finder.find(ctx, i)
	if err != nil {
		return "", err
	}
	// Create the directory first: Hide looks for views only if their directory exists.
	if err := os.MkdirAll(dir, layout.ModePrivate); err != nil {
		return "", fmt.Errorf("showing image %s: %w", Quoted(i.Name), err)
	}
	store := v.client.Snapshots()
	key := shownKey(uid, volume)
	digest := i.ID[strings.LastIndex(i.ID, "@")+1:]
	labels := snapshots.WithLabels(map[string]string{
		labelRoot:  time.Now().UTC().Format(time.RFC3339),
		labelShown: digest,
	})
	mounts, err := store.View(ctx, key, known.chainID, labels)
	if errdefs.IsAlreadyExists(err) {
		mounts, err = store.Mounts(ctx, key)
	}
	if err != nil {
		return "", daemon.Mapped("showing image "+Quoted(i.Name), err)
	}
	if err := mountFiles(mounts, dir, sys.AllowExec); err != nil {
		return "", fmt.Errorf("showing image %s: %w", Quoted(i.Name), err)
	}
	return dir, nil
}

// Digests returns the digests of the images that are volumes of pods.
func (v *Volumes) Digests(ctx context.Context) (map[string]bool, error) {
	digests := map[string]bool{}
	err := v.client.Snapshots().Walk(ctx, func(_ context.Context, i snapshots.Info) error {
		digests[i.Labels[labelShown]] = true
		return nil
	}, fmt.Sprintf("labels.%q", labelShown))
	if err != nil {
		return nil, daemon.Mapped("listing volumes of images", err)
	}
	return digests, nil
}

// Hide unmounts the images that Show mounted as volumes of a revision, and removes their snapshots.
func (v *Volumes) Hide(ctx context.Context, uid pod.UID) error {
	ctx = v.client.Context(ctx)
	parent := filepath.Dir(v.dirs.Revision(uid).Volume(layout.KindImage, "x"))
	entries, err := os.ReadDir(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // Show was never called
	}
	if err != nil {
		return err
	}
	store := v.client.Snapshots()
	for _, e := range entries {
		dir := filepath.Join(parent, e.Name())
		mounted, err := mountinfo.Mounted(dir)
		if err == nil && mounted {
			err = sys.Unmount(dir)
		}
		if err != nil {
			return fmt.Errorf("unmounting %s: %w", dir, err)
		}
		if err := store.Remove(ctx, shownKey(uid, e.Name())); err != nil && !daemon.IsNotFound(err) {
			return daemon.Mapped("removing a view of an image", err)
		}
	}
	return nil
}
