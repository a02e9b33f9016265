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

	"github.com/containerd/containerd/v2/core/mount"
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

// shownKey returns the key of the view snapshot of a volume. Neither a UID nor a volume's name
// contains a slash, so no two volumes have the same key, whatever their manifests choose.
func shownKey(uid pod.UID, volume string) string {
	return "podrun-volume/" + string(uid) + "/" + volume
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
	mounts, err := v.view(ctx, shownKey(uid, volume), known)
	if err != nil {
		return "", daemon.Mapped("showing image "+Quoted(i.Name), err)
	}
	if err := mountFiles(mounts, dir, sys.AllowExec); err != nil {
		return "", fmt.Errorf("showing image %s: %w", Quoted(i.Name), err)
	}
	return dir, nil
}

// view returns the mounts of the view snapshot with that key. It replaces a snapshot of another image, which
// remains if a Show was interrupted before it mounted anything.
func (v *Volumes) view(ctx context.Context, key string, of *Image) ([]mount.Mount, error) {
	store := v.client.Snapshots()
	labels := snapshots.WithLabels(map[string]string{
		labelRoot:  time.Now().UTC().Format(time.RFC3339),
		labelShown: of.digest,
	})
	mounts, err := store.View(ctx, key, of.chainID, labels)
	if !errdefs.IsAlreadyExists(err) {
		return mounts, err
	}
	there, err := store.Stat(ctx, key)
	if err == nil && there.Kind == snapshots.KindView && there.Parent == of.chainID &&
		there.Labels[labelShown] == of.digest {
		return store.Mounts(ctx, key)
	}
	if err != nil && !daemon.IsNotFound(err) {
		return nil, err
	}
	if err := v.drop(ctx, key); err != nil {
		return nil, err
	}
	return store.View(ctx, key, of.chainID, labels)
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
	for _, e := range entries {
		dir := filepath.Join(parent, e.Name())
		mounted, err := mountinfo.Mounted(dir)
		if err == nil && mounted {
			err = sys.Unmount(dir)
		}
		if err != nil {
			return fmt.Errorf("unmounting %s: %w", dir, err)
		}
		err = v.drop(ctx, shownKey(uid, e.Name()))
		if err == nil {
			err = v.dropFormer(ctx, uid, e.Name())
		}
		if err != nil {
			return daemon.Mapped("removing a view of an image", err)
		}
	}
	return nil
}

// dropFormer removes the view snapshot that the former version of podrun created for a volume. Its key can be that
// of other pods' volumes too: while one of them is mounted, the snapshot remains, for that pod's
// Hide. The function may be removed after the next release.
func (v *Volumes) dropFormer(ctx context.Context, uid pod.UID, volume string) error {
	joined := string(uid) + "-" + volume
	for at := range joined {
		other := pod.UID(joined[:at])
		if joined[at] != '-' || other == uid || layout.CheckUID(other) != nil {
			continue
		}
		mounted, err := mountinfo.Mounted(v.dirs.Revision(other).Volume(layout.KindImage, joined[at+1:]))
		if mounted || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return v.drop(ctx, "podrun-volume-"+joined)
}

// drop removes the snapshot with that key, if there is one.
func (v *Volumes) drop(ctx context.Context, key string) error {
	if err := v.client.Snapshots().Remove(ctx, key); err != nil && !daemon.IsNotFound(err) {
		return err
	}
	return nil
}
