package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/ocispec"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
)

// labelUser is on images: who a container of the image runs as, by name looked up in it.
const labelUser = "podrun.io/user"

// userLabel is the content of labelUser. It holds for the digest only: a name may come to stand for
// another image.
type userLabel struct {
	Digest string   `json:"digest"`
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}

// userText is the content of labelUser; "" if it is too long for a label.
func userText(digest string, user specs.User) string {
	text, err := json.Marshal(userLabel{Digest: digest, UID: user.UID, GID: user.GID, Groups: user.AdditionalGids})
	if err != nil || len(text) >= daemon.LabelLimit-len(labelUser) {
		return ""
	}
	return string(text)
}

// userOf is who the image's USER names, looked up in the image's own files. The answer is kept as the
// image's label, because looking takes a mount.
func (s *Store) userOf(ctx context.Context, i images.Image, known *Image) (specs.User, error) {
	digest := i.Target.Digest.String()
	var kept userLabel
	if json.Unmarshal([]byte(i.Labels[labelUser]), &kept) == nil && kept.Digest == digest {
		return specs.User{UID: kept.UID, GID: kept.GID, AdditionalGids: kept.Groups}, nil
	}
	user, err := s.lookUpUser(ctx, digest, known, known.Config.User)
	if err != nil {
		return specs.User{}, fmt.Errorf("finding the user %q of image %s: %w", known.Config.User, i.Name, err)
	}
	if text := userText(digest, user); text != "" {
		i.Labels = map[string]string{labelUser: text}
		if _, err := s.client.ImageService().Update(ctx, i, "labels."+labelUser); err != nil {
			s.o.Log.Debug("an image's user is not kept", "image", i.Name, "why", err)
		}
	}
	return user, nil
}

// User is who name, in the form of an image's USER, stands for in the image.
func (i *Image) User(ctx context.Context, name string) (specs.User, error) {
	if name == ocispec.UserName(&v1.Pod{}, &v1.Container{}, i.Config.User) {
		return i.user, nil
	}
	s, key := i.store, i.chainID+" "+name
	s.lookingUp.Lock() // one looks, the others hear of it
	defer s.lookingUp.Unlock()
	if user, ok := s.users.Get(key); ok {
		return user, nil
	}
	user, err := s.lookUpUser(s.client.Context(ctx), i.chainID, i, name)
	if err != nil {
		return specs.User{}, fmt.Errorf("finding the user %q in image %s: %w", name, i.name, err)
	}
	s.users.Put(key, user)
	return user, nil
}

// lookUpUser looks for the user name, which may be a number, in the image's files. Digest is of the image or
// its files.
func (s *Store) lookUpUser(ctx context.Context, digest string, known *Image, name string) (user specs.User, err error) {
	ctx, release, err := s.client.WithLease(ctx) // else the view might be collected while it is used
	if err != nil {
		return user, err
	}
	clean, cancel := daemon.CleanupContext(ctx)
	defer cancel()
	defer func() { _ = release(clean) }() // it expires by itself
	snapshots := s.client.Snapshots()
	key := "podrun-user-" + digest + "-" + name
	mounts, err := snapshots.View(ctx, key, known.chainID)
	if errdefs.IsAlreadyExists(err) {
		mounts, err = snapshots.Mounts(ctx, key)
	}
	if err != nil {
		return user, err
	}
	defer func() {
		if gone := snapshots.Remove(clean, key); gone != nil && !daemon.IsNotFound(gone) {
			err = errors.Join(err, gone)
		}
	}()
	if name == "" {
		name = "0"
	}
	err = mount.WithReadonlyTempMount(ctx, mounts, func(root string) error {
		spec := &specs.Spec{Root: &specs.Root{Path: root}, Process: &specs.Process{}, Linux: &specs.Linux{}}
		opts := []oci.SpecOpts{oci.WithUser(name), oci.WithAdditionalGIDs(strings.Split(name, ":")[0])}
		if err := oci.ApplyOpts(ctx, nil, &containers.Container{}, spec, opts...); err != nil {
			return err
		}
		user = spec.Process.User
		return nil
	})
	return user, err
}
