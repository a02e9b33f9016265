package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/volume/fsgroup"
	"podrun.io/podrun/internal/volume/provision"
)

// A PersistentVolumeClaim without a PersistentVolume or a StorageClass is a directory with the claim's name that
// outlives pods: every pod that names the claim uses the directory.

// readyClaim creates the claim's directory if it does not exist, and returns its path.
func readyClaim(ctx context.Context, v *Volumes, p *v1.Pod, c *v1.PersistentVolumeClaimVolumeSource) (string, error) {
	claim := c.ClaimName
	if !isComponent(p.Namespace) || !isComponent(claim) || strings.HasPrefix(claim, ".") {
		return "", fmt.Errorf("the claim %q cannot be a directory's name", claim)
	}
	recorded := pod.Key{Namespace: p.Namespace, Name: claim}
	if mountsOn(p, claim) {
		recorded.Name = ""
	}
	if err := provision.RecordMounted(v.dirs, recorded); err != nil {
		return "", err
	}
	if err := v.makeClaim(p.Namespace, claim); err != nil {
		return "", err
	}
	if c.ReadOnly { // as in the kubelet it is given to the group by who writes to it
		return v.dirs.Claim(p.Namespace, claim), nil
	}
	return v.dirs.Claim(p.Namespace, claim), v.ownOnce(ctx, p, claim)
}

// mountsOn reports whether what is mounted on a claim may be the pod's own work, which begins without it.
func mountsOn(p *v1.Pod, claim string) bool {
	for _, volume := range p.Spec.Volumes {
		if c := volume.PersistentVolumeClaim; c == nil || c.ClaimName != claim {
			continue
		}
		for _, c := range pod.AllContainers(p) {
			if slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool {
				return m.Name == volume.Name && isBidirectional(m)
			}) {
				return true
			}
		}
	}
	return false
}

// makeClaim holds no lock over an access to what may be a file system of its own, which may not answer, except that of
// the claim's namespace while it makes the directory there.
func (v *Volumes) makeClaim(namespace, claim string) error {
	if err := os.MkdirAll(v.dirs.Claims(), layout.ModePrivate); err != nil {
		return err
	}
	root, err := os.OpenRoot(v.dirs.Claims())
	if err != nil {
		return err
	}
	defer root.Close()
	within := filepath.Join(namespace, claim)
	made := func() (bool, error) {
		info, err := root.Lstat(within)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is not a directory", v.dirs.Claim(namespace, claim))
		}
		return true, err
	}
	if is, err := made(); is || err != nil {
		return err
	}
	defer lockNamespace(v, namespace)()
	if is, err := made(); is || err != nil { // another pod has made it
		return err
	}
	return makeShared(root, within)
}

// lockNamespace waits until nobody else makes a claim's directory in a namespace, and returns the end of that.
func lockNamespace(v *Volumes, namespace string) (unlock func()) {
	v.mu.Lock()
	lock := v.namespaces[namespace]
	if lock == nil {
		lock = &sync.Mutex{}
		v.namespaces[namespace] = lock
	}
	v.mu.Unlock()
	lock.Lock()
	return lock.Unlock
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
	var refused *fsgroup.RefusedError
	if err := fsgroup.Give(ctx, dir, p); errors.As(err, &refused) {
		warnOfGroup(v.log, p, err)
	} else if err != nil {
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
