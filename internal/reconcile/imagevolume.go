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

// reasonPulling is how a status shows that a volume's image is on its way.
const reasonPulling = "ContainerCreating"

// imageOf is the name under which a worker keeps a volume's image among those of its containers. It is no
// container's.
func imageOf(volume string) string { return "volume/" + volume }

// volumeError says why a volume's image is not there, where the reason would else be the container's own image.
type volumeError string

func (e volumeError) Error() string { return string(e) }

// imageVolumes makes the images visible that c mounts, and returns where. What must be pulled first comes beside
// the worker; until then it is an error.
func (w *worker) imageVolumes(ctx context.Context, c *v1.Container) (map[string]string, error) {
	var paths map[string]string
	for _, m := range c.VolumeMounts {
		for i := range w.pod.Spec.Volumes {
			volume := &w.pod.Spec.Volumes[i]
			if volume.Name != m.Name || volume.Image == nil || paths[m.Name] != "" {
				continue
			}
			ready, err := w.volumeImage(ctx, volume)
			if err != nil {
				return nil, err
			}
			path, err := w.o.Images.Show(ctx, ready, w.pod.UID, volume.Name)
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

// volumeImage finds the volume's image or begins to pull it, as its pull policy says, once a revision.
func (w *worker) volumeImage(ctx context.Context, volume *v1.Volume) (pod.Image, error) {
	ref, name := volume.Image.Reference, imageOf(volume.Name)
	switch i := w.images[name]; {
	case i != nil && i.cancel == nil:
		return i.ready, nil
	case i == nil && volume.Image.PullPolicy != v1.PullAlways:
		ready, err := w.o.Images.Resolve(ctx, ref)
		if err == nil {
			w.images[name] = &image{ready: ready}
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
	if f, failed := w.failures[name]; failed && w.images[name] == nil {
		// Said where the container's own would be; the next attempt pulls anew.
		delete(w.failures, name)
		return pod.Image{}, &runtime.ReasonError{Reason: f.Reason, Err: volumeError(fmt.Sprintf("volume %q: %s", volume.Name, f.Message))}
	}
	if w.images[name] == nil {
		w.pull(ctx, name, ref)
	}
	return pod.Image{}, &runtime.ReasonError{Reason: reasonPulling, Err: fmt.Errorf("pulling image %q of volume %q", ref, volume.Name)}
}

// pulledVolume lets those that wait for a volume's image try again.
func (w *worker) pulledVolume() {
	for name, f := range w.failures {
		if f.Reason == reasonPulling {
			delete(w.failures, name)
		}
	}
}
