package pull

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile/record"
	"podrun.io/podrun/internal/reconcile/revision"
	"podrun.io/podrun/internal/runtime"
)

// Mount mounts the images of c's image volumes and returns, by volume name, their paths and the IDs of the
// images. It returns an error while an image must still be pulled; the pull runs in its own goroutine.
func (u *Puller) Mount(
	ctx context.Context, s revision.State, c *v1.Container,
) (paths, ids map[string]string, err error) {
	for _, m := range c.VolumeMounts {
		for i := range s.Pod.Spec.Volumes {
			volume := &s.Pod.Spec.Volumes[i]
			if volume.Name != m.Name || volume.Image == nil || paths[m.Name] != "" {
				continue
			}
			ready, err := u.volumeImage(ctx, s, volume)
			if err != nil {
				return nil, nil, err
			}
			path, err := u.o.Images.Show(ctx, ready, s.Pod.UID, volume.Name)
			if err != nil {
				return nil, nil, fmt.Errorf("volume %q: %w", volume.Name, err)
			}
			if paths == nil {
				paths, ids = map[string]string{}, map[string]string{}
			}
			paths[volume.Name], ids[volume.Name] = path, ready.ID
		}
	}
	return paths, ids, nil
}

// volumeImage resolves the volume's local image or starts a pull, as the pull policy says, once per
// revision.
func (u *Puller) volumeImage(ctx context.Context, s revision.State, volume *v1.Volume) (pod.Image, error) {
	ref, name := volume.Image.Reference, record.VolumeImage(volume.Name)
	switch i := u.all[name]; {
	case i != nil && i.cancel == nil:
		return i.ready, nil
	case i == nil && volume.Image.PullPolicy != v1.PullAlways:
		ready, err := u.o.Images.Resolve(ctx, ref)
		if err == nil {
			u.all[name] = &image{ready: ready}
			return ready, nil
		}
		if !errors.Is(err, runtime.ErrNotFound) {
			return ready, err
		}
		if volume.Image.PullPolicy == v1.PullNever {
			return ready, neverPull(
				fmt.Errorf("image %q of volume %q is not present with pull policy of Never", ref, volume.Name))
		}
	}
	if f, failed := u.o.Failures.Last[name]; failed && u.all[name] == nil {
		// Report it as the container's own image would be. The next attempt pulls again.
		delete(u.o.Failures.Last, name)
		return pod.Image{}, &runtime.ReasonError{
			Reason: f.Reason,
			Err:    record.VolumeError(fmt.Sprintf("volume %q: %s", volume.Name, f.Message)),
		}
	}
	if u.all[name] == nil {
		u.pull(ctx, s, name, ref)
	}
	return pod.Image{}, &runtime.ReasonError{
		Reason: record.ReasonPulling,
		Err:    fmt.Errorf("pulling image %q of volume %q", ref, volume.Name),
	}
}
