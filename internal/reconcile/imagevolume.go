package reconcile

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// reasonPulling is the reason in the status of a container that waits for the pull of a volume's
// image.
const reasonPulling = "ContainerCreating"

// imageOf is the key of a volume's image in puller.all. No container can have this name.
func imageOf(volume string) string { return "volume/" + volume }

// volumeError says why a volume's image is missing, where the reason alone would mean the
// container's own image.
type volumeError string

func (e volumeError) Error() string { return string(e) }

// mount mounts the images of c's image volumes and returns their paths by volume name. It
// returns an error while an image must still be pulled; the pull runs in its own goroutine.
func (u *puller) mount(ctx context.Context, s state, c *v1.Container) (map[string]string, error) {
	var paths map[string]string
	for _, m := range c.VolumeMounts {
		for i := range s.pod.Spec.Volumes {
			volume := &s.pod.Spec.Volumes[i]
			if volume.Name != m.Name || volume.Image == nil || paths[m.Name] != "" {
				continue
			}
			ready, err := u.volumeImage(ctx, s, volume)
			if err != nil {
				return nil, err
			}
			path, err := u.images.Show(ctx, ready, s.pod.UID, volume.Name)
			if err != nil {
				return nil, fmt.Errorf("volume %q: %w", volume.Name, err)
			}
			if paths == nil {
				paths = map[string]string{}
			}
			paths[volume.Name] = path
		}
	}
	return paths, nil
}

// volumeImage resolves the volume's local image or starts a pull, as the pull policy says, once per
// revision.
func (u *puller) volumeImage(ctx context.Context, s state, volume *v1.Volume) (pod.Image, error) {
	ref, name := volume.Image.Reference, imageOf(volume.Name)
	switch i := u.all[name]; {
	case i != nil && i.cancel == nil:
		return i.ready, nil
	case i == nil && volume.Image.PullPolicy != v1.PullAlways:
		ready, err := u.images.Resolve(ctx, ref)
		if err == nil {
			u.all[name] = &image{ready: ready}
			return ready, nil
		}
		if !errors.Is(err, runtime.ErrNotFound) {
			return ready, err
		}
		if volume.Image.PullPolicy == v1.PullNever {
			return ready, &runtime.ReasonError{Reason: plan.ReasonErrImageNeverPull,
				Err: fmt.Errorf("image %q of volume %q is not present with pull policy of Never", ref, volume.Name)}
		}
	}
	if f, failed := u.failures.last[name]; failed && u.all[name] == nil {
		// Report it as the container's own image would be. The next attempt pulls again.
		delete(u.failures.last, name)
		return pod.Image{}, &runtime.ReasonError{
			Reason: f.Reason,
			Err:    volumeError(fmt.Sprintf("volume %q: %s", volume.Name, f.Message)),
		}
	}
	if u.all[name] == nil {
		u.pull(ctx, s, name, ref)
	}
	return pod.Image{}, &runtime.ReasonError{
		Reason: reasonPulling,
		Err:    fmt.Errorf("pulling image %q of volume %q", ref, volume.Name),
	}
}
