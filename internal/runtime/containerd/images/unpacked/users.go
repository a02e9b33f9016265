package unpacked

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/opencontainers/runtime-spec/specs-go"

	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/images/accounts"
	"podrun.io/podrun/internal/sys/memo"
)

// labelUser is a label of images. Its value is the user and groups as which a container of the
// image runs, resolved from the names in the image.
const labelUser = "podrun.io/user"

// lookUpLease is the lifetime of a snapshot that a podrun left when it was killed while it looked
// up a user.
const lookUpLease = 10 * time.Minute

// userLabel is the value of labelUser. It is valid only for its digest: the name of an image may
// later refer to another image.
type userLabel struct {
	Digest string   `json:"digest"`
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
	// GroupEntries is nil in labels of former versions of podrun.
	GroupEntries *int `json:"groupEntries,omitempty"`
}

// userText returns the value of labelUser; "" if it is too long for a label.
func userText(digest string, user accounts.User) string {
	text, err := json.Marshal(userLabel{
		Digest: digest, UID: user.UID, GID: user.GID, Groups: user.AdditionalGids, GroupEntries: &user.GroupEntries,
	})
	if err != nil || len(text) >= daemon.LabelLimit-len(labelUser) {
		return ""
	}
	return string(text)
}

// users finds the users that images name.
type users struct {
	client *daemon.Client
	views  *Views
	log    *slog.Logger
	// cache maps an image's layers and a user name to the user.
	cache memo.Map[string, accounts.User]
	locks locks
}

// ofImage returns the user that the image's USER names, from the image's own files. The result is
// stored in a label of the image, because reading the files needs a mount.
func (u *users) ofImage(ctx context.Context, i images.Image, known *Image) (accounts.User, error) {
	digest := i.Target.Digest.String()
	var kept userLabel
	if json.Unmarshal([]byte(i.Labels[labelUser]), &kept) == nil && kept.Digest == digest &&
		kept.GroupEntries != nil {
		return accounts.User{
			User:         specs.User{UID: kept.UID, GID: kept.GID, AdditionalGids: kept.Groups},
			GroupEntries: *kept.GroupEntries,
		}, nil
	}
	user, err := u.find(ctx, known, known.Config.User)
	if err != nil {
		return accounts.User{}, fmt.Errorf("finding the user %q of image %s: %w", known.Config.User, Quoted(i.Name), err)
	}
	if text := userText(digest, user); text != "" {
		i.Labels = map[string]string{labelUser: text}
		if _, err := u.client.ImageService().Update(ctx, i, "labels."+labelUser); err != nil {
			u.log.Debug("user of the image cannot be stored in its label", "image", i.Name, "err", err)
		}
	}
	return user, nil
}

// find returns the user for name in the image. It caches the result.
func (u *users) find(ctx context.Context, known *Image, name string) (accounts.User, error) {
	key := known.chainID + " " + name
	unlock, err := u.locks.lock(ctx, key)
	if err != nil {
		return accounts.User{}, err
	}
	defer unlock()
	if user, ok := u.cache.Get(key); ok {
		return user, nil
	}
	user, err := u.lookUp(ctx, known, name)
	if err == nil && len(user.AdditionalGids) <= mostGroups {
		u.cache.Put(key, user)
	}
	return user, err
}

// lookUp finds the user name, which may be a number, in the image's files. It mounts them from
// a snapshot of its own, because other processes may look up the same user concurrently, and the
// first that finishes removes its snapshot. The lease makes containerd remove the snapshot if this
// process is killed.
func (u *users) lookUp(ctx context.Context, known *Image, name string) (user accounts.User, err error) {
	ctx, release, err := u.client.WithLease(ctx, leases.WithRandomID(), leases.WithExpiration(lookUpLease))
	if err != nil {
		return user, err
	}
	clean, cancel := daemon.CleanupContext(ctx)
	defer cancel()
	defer func() { _ = release(clean) }() // it expires by itself
	snapshots := u.client.Snapshots()
	key := "podrun-user-" + rand.Text()
	mounts, err := snapshots.View(ctx, key, known.chainID)
	if err != nil {
		return user, err
	}
	defer func() {
		if err := snapshots.Remove(clean, key); err != nil && !daemon.IsNotFound(err) {
			u.log.Debug("snapshot cannot be removed; containerd removes it when its lease expires",
				"snapshot", key, "err", err)
		}
	}()
	if name == "" {
		name = "0"
	}
	err = u.views.with(mounts, func(root string) (err error) {
		user, err = accounts.Find(root, name)
		return err
	})
	return user, err
}
