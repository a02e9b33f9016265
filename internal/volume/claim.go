package volume

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/volume/fsgroup"
	"podrun.io/podrun/internal/volume/provision"
)

// A PersistentVolumeClaim without a PersistentVolume or a StorageClass is a directory with the claim's name that
// outlives pods: every pod that names the claim uses the directory.

// ErrInUse reports that a pod uses the volume.
var ErrInUse = errors.New("in use")

// ErrNoVolume reports that there is no such volume.
var ErrNoVolume = errors.New("no such volume")

// Claim is the volume of a PersistentVolumeClaim, which outlives pods.
type Claim struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Path      string    `json:"path"`
	Made      time.Time `json:"made"`
	// Pods are the names of the pods that have the claim in their manifest.
	Pods []string `json:"pods"`
	// Driver has made the volume, for its StorageClass, and calls it Handle; "": it is a directory.
	Driver       string `json:"driver,omitempty"`
	StorageClass string `json:"storageClass,omitempty"`
	Handle       string `json:"handle,omitempty"`
}

// readyClaim creates the claim's directory if it does not exist, and returns its path.
func (v *Volumes) readyClaim(ctx context.Context, p *v1.Pod, claim string) (string, error) {
	if !isComponent(p.Namespace) || !isComponent(claim) || strings.HasPrefix(claim, ".") {
		return "", fmt.Errorf("the claim %q cannot be a directory's name", claim)
	}
	if err := v.makeClaim(p.Namespace, claim); err != nil {
		return "", err
	}
	return v.dirs.Claim(p.Namespace, claim), v.ownOnce(ctx, p, claim)
}

func (v *Volumes) makeClaim(namespace, claim string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := os.MkdirAll(v.dirs.Claims(), layout.ModePrivate); err != nil {
		return err
	}
	root, err := os.OpenRoot(v.dirs.Claims())
	if err != nil {
		return err
	}
	defer root.Close()
	within := filepath.Join(namespace, claim)
	switch info, err := root.Lstat(within); {
	case errors.Is(err, fs.ErrNotExist):
		return makeShared(root, within)
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", v.dirs.Claim(namespace, claim))
	}
	return nil
}

// ownOnce gives a claim's directory to the pod's group, once per pod revision in the lifetime of
// this process. It does not hold v.mu meanwhile, because its cost grows with the volume's size and
// other pods must not wait for it.
func (v *Volumes) ownOnce(ctx context.Context, p *v1.Pod, claim string) error {
	key := ownKey{p.UID, filepath.Join(p.Namespace, claim)}
	v.mu.Lock()
	owned := v.owned[key]
	v.mu.Unlock()
	if fsgroup.Of(p) == nil || owned {
		return nil
	}
	dir, err := sys.OpenTree(v.dirs.Claim(p.Namespace, claim))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := fsgroup.Give(ctx, dir, p); err != nil {
		return fmt.Errorf("giving it to the group %d: %w", *fsgroup.Of(p), err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.owned[key] = true
	return nil
}

// ownKey is a volume that was given to the group of a pod revision.
type ownKey struct {
	uid    pod.UID
	volume string
}

// Claims lists the volumes of PersistentVolumeClaims below dirs, sorted by namespace and name.
func Claims(dirs layout.Dirs) ([]Claim, error) {
	using, err := users(dirs)
	if err != nil {
		return nil, err
	}
	claims := []Claim{}
	provisioned, err := provision.List(dirs)
	for _, v := range provisioned {
		claims = append(claims, Claim{
			Namespace: v.Namespace, Name: v.Claim, Made: v.Made, Pods: using[v.Key()],
			Driver: v.Driver, StorageClass: v.Class, Handle: v.Handle,
		})
	}
	if err != nil {
		return nil, fmt.Errorf("listing volumes: %w", err)
	}
	spaces, err := os.ReadDir(dirs.Claims())
	if errors.Is(err, fs.ErrNotExist) {
		return claims, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing volumes: %w", err)
	}
	for _, space := range spaces {
		if !space.IsDir() {
			continue
		}
		entries, err := os.ReadDir(filepath.Join(dirs.Claims(), space.Name()))
		if err != nil {
			return nil, fmt.Errorf("listing volumes: %w", err)
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil || !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
				continue
			}
			key := pod.Key{Namespace: space.Name(), Name: e.Name()}
			path := dirs.Claim(key.Namespace, key.Name)
			claims = append(claims, Claim{
				Namespace: key.Namespace, Name: key.Name, Made: made(path, info), Path: path, Pods: using[key],
			})
		}
	}
	slices.SortFunc(claims, func(a, b Claim) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return claims, nil
}

// made returns when a directory was created or, on a file system that does not know, when its content last changed.
func made(path string, info fs.FileInfo) time.Time {
	var s unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME, &s)
	if err != nil || s.Mask&unix.STATX_BTIME == 0 {
		return info.ModTime()
	}
	return time.Unix(s.Btime.Sec, int64(s.Btime.Nsec))
}

// users returns the names of the pods that exist, by the claims that they use.
func users(dirs layout.Dirs) (map[pod.Key][]string, error) {
	entries, err := os.ReadDir(dirs.Pods())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	users := map[pod.Key][]string{}
	for _, e := range entries {
		data, err := readKept(dirs.Revision(pod.UID(e.Name())).Checkpoint())
		if errors.Is(err, fs.ErrNotExist) { // of the former version, not adopted yet
			data, err = readKept(dirs.Legacy().Manifest(pod.UID(e.Name())))
		}
		if errors.Is(err, fs.ErrNotExist) || !e.IsDir() {
			continue
		}
		var kept struct {
			Pod *v1.Pod `json:"pod"`
		}
		if err == nil {
			err = json.Unmarshal(data, &kept)
		}
		if err != nil || kept.Pod == nil {
			return nil, fmt.Errorf("reading the checkpoint of revision %s: %w",
				e.Name(), cmp.Or(err, errors.New("it contains no pod")))
		}
		for _, volume := range kept.Pod.Spec.Volumes {
			if c := volume.PersistentVolumeClaim; c != nil {
				key := pod.Key{Namespace: kept.Pod.Namespace, Name: c.ClaimName}
				if !slices.Contains(users[key], kept.Pod.Name) {
					users[key] = append(users[key], kept.Pod.Name)
				}
			}
		}
	}
	return users, nil
}

// readKept reads a file that podrun keeps of a pod. Containers cannot write to it, and it is far
// shorter than the limit here.
func readKept(path string) ([]byte, error) {
	return sys.ReadRegular(filepath.Dir(path), filepath.Base(path), sys.NoLinks, 64<<20)
}

// RemoveClaim removes a volume and its content. It fails with ErrInUse if a pod uses it and with
// ErrNoVolume if it does not exist. Kept says what its driver keeps, after a semicolon; "" if nothing.
func RemoveClaim(ctx context.Context, dirs layout.Dirs, namespace, name string) (kept string, err error) {
	dir := dirs.Claim(namespace, name)
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("removing volume %s/%s: %w", namespace, name, err)
	}
	if !isComponent(namespace) || !isComponent(name) || strings.HasPrefix(name, ".") {
		return fail(ErrNoVolume)
	}
	free := func() error {
		using, err := users(dirs)
		if pods := using[pod.Key{Namespace: namespace, Name: name}]; len(pods) > 0 {
			return fmt.Errorf("%w by pod %s", ErrInUse, strings.Join(pods, ", "))
		}
		return err
	}
	claim := pod.Key{Namespace: namespace, Name: name}
	if found, kept, err := provision.Remove(ctx, dirs, claim, free); err != nil {
		return fail(err)
	} else if found {
		return kept, nil
	}
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return fail(ErrNoVolume)
	}
	if err := errors.Join(free(), sys.NotMounted(dir)); err != nil {
		return fail(err)
	}
	going := filepath.Join(filepath.Dir(dir), ".going-"+name)
	if err := removeTree(ctx, going); err != nil {
		return fail(err)
	}
	if err := os.Rename(dir, going); err != nil {
		return fail(err)
	}
	// A pod that was created in the meantime uses this volume, or has created an empty one in its
	// place, which the rename replaces.
	if err := free(); err != nil {
		return fail(errors.Join(err, os.Rename(going, dir)))
	}
	if err := removeTree(ctx, going); err != nil {
		return fail(err)
	}
	if err := os.Remove(filepath.Dir(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) && !isNotEmpty(err) {
		return fail(err)
	}
	return "", nil
}

// removeTree removes a directory in which nothing is mounted. Symbolic links in it are removed, not
// followed.
func removeTree(ctx context.Context, dir string) error {
	if err := sys.NotMounted(dir); err != nil {
		return err
	}
	return sys.RemoveTree(ctx, dir)
}
