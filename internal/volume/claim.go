package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/volume/directory"
	"podrun.io/podrun/internal/volume/fsgroup"
	"podrun.io/podrun/internal/volume/provision"
)

// A PersistentVolumeClaim without a PersistentVolume or a StorageClass is a directory with the claim's name that
// outlives pods: every pod that names the claim uses the directory.

// readyClaim creates the claim's directory if it does not exist.
func readyClaim(ctx context.Context, v *Volumes, p *v1.Pod, c *v1.PersistentVolumeClaimVolumeSource) (source, error) {
	claim := pod.Key{Namespace: p.Namespace, Name: c.ClaimName}
	if !isComponent(claim.Namespace) || !isComponent(claim.Name) || strings.HasPrefix(claim.Name, ".") {
		return source{}, fmt.Errorf("the claim %q cannot be a directory's name", claim.Name)
	}
	recorded := claim
	if mountsOn(p, claim.Name) {
		recorded.Name = ""
	}
	if err := provision.RecordMounted(v.dirs, recorded); err != nil {
		return source{}, err
	}
	if err := v.makeClaim(claim); err != nil {
		return source{}, err
	}
	s := source{
		path: v.dirs.Claim(claim.Namespace, claim.Name), readOnly: c.ReadOnly, foreign: true,
		open: func() (*os.File, error) { return directory.OpenClaim(v.dirs, claim, unix.O_PATH) },
	}
	if c.ReadOnly { // as in the kubelet it is given to the group by who writes to it
		return s, nil
	}
	return s, v.ownOnce(ctx, p, claim)
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
func (v *Volumes) makeClaim(claim pod.Key) error {
	if is, err := directory.HasClaim(v.dirs, claim); is || err != nil {
		return err
	}
	defer lockNamespace(v, claim.Namespace)()
	if is, err := directory.HasClaim(v.dirs, claim); is || err != nil { // another pod has made it
		return err
	}
	return directory.MakeClaim(v.dirs, claim)
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
func (v *Volumes) ownOnce(ctx context.Context, p *v1.Pod, claim pod.Key) error {
	key := ownKey{p.UID, claim}
	v.mu.Lock()
	owned := v.owned[key]
	v.mu.Unlock()
	if fsgroup.Of(p) == nil || owned {
		return nil
	}
	dir, err := directory.OpenClaim(v.dirs, claim, os.O_RDONLY)
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

// ownKey is a claim that was given to the group of a pod revision.
type ownKey struct {
	uid   pod.UID
	claim pod.Key
}
