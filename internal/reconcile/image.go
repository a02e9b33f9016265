package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// image is the state of one container's image: it is being pulled while cancel is set, else it is
// ready.
type image struct {
	cancel context.CancelFunc
	ref    string
	ready  pod.Image
}

// pullPeriod is how often the progress of pulls is published in the status.
const pullPeriod = time.Second

type pullResult struct {
	container string
	ref       string
	elapsed   time.Duration
	of        *image
	ready     pod.Image
	// instead is why the pull failed, if ready is a local image that is used in its place.
	instead error
	err     error
}

// ensureImage resolves the local image or starts a pull, as the pull policy says. Pulls run in
// their own goroutines, so that the pod's other containers are served meanwhile.
func (w *worker) ensureImage(ctx context.Context, name string) error {
	c := container(w.state.pod, name)
	if c == nil {
		return fmt.Errorf("finding image of %s: not what was planned", name)
	}
	if c.ImagePullPolicy != v1.PullAlways {
		ready, err := w.o.Images.Resolve(ctx, c.Image)
		if err == nil {
			w.images[name] = &image{ready: ready}
			w.record(name, normal, "Pulled", fmt.Sprintf("Image %q is present on this machine already", c.Image))
			return nil
		}
		if !errors.Is(err, runtime.ErrNotFound) {
			return err
		}
		if c.ImagePullPolicy == v1.PullNever {
			return &runtime.ReasonError{
				Reason: plan.ReasonErrImageNeverPull,
				//nolint:staticcheck // Kubernetes' words
				Err: fmt.Errorf("Container image %q is not present with pull policy of Never", c.Image),
			}
		}
	}
	w.pull(ctx, name, c.Image)
	return nil
}

func (w *worker) pull(ctx context.Context, container, ref string) {
	pctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	i := &image{cancel: cancel, ref: ref}
	w.images[container] = i
	logins := w.logins()
	w.log.Info("pulling image", "container", container, "image", ref)
	w.record(container, normal, "Pulling", fmt.Sprintf("Pulling image %q", ref))
	began := time.Now()
	w.beside.Go(func() {
		defer cancel()
		ready, err := w.o.Images.Pull(pctx, ref, logins...)
		var instead error
		if err != nil && pctx.Err() == nil && w.o.PreferLocal {
			if present, missing := w.o.Images.Resolve(pctx, ref); missing == nil {
				w.log.Warn("image pull failed; using the local image",
					"container", container, "image", ref, "err", err)
				ready, instead, err = present, err, nil
			}
		}
		select {
		case w.pulled <- pullResult{
			container: container,
			of:        i,
			ref:       ref,
			elapsed:   time.Since(began),
			ready:     ready,
			instead:   instead,
			err:       err,
		}:
		case <-pctx.Done():
		}
	})
}

// keepPull stores the result of a pull, unless the pull has been cancelled meanwhile.
func (w *worker) keepPull(r pullResult) {
	if w.images[r.container] != r.of {
		return
	}
	delete(w.images, r.container)
	w.pulledVolume()
	if r.err == nil {
		w.images[r.container] = &image{ready: r.ready}
		if r.instead != nil {
			w.record(r.container, warning, "Failed",
				fmt.Sprintf("Failed to pull image %q, starting from the one that is present: %v", r.ref, r.instead))
		} else {
			w.record(r.container, normal, "Pulled",
				fmt.Sprintf("Pulled image %q in %s", r.ref, r.elapsed.Round(time.Millisecond)))
		}
	}
	if errors.Is(r.err, runtime.ErrUnavailable) {
		// Record it as a usual failure, so that the next pull backs off.
		r.err = errors.New(r.err.Error())
	}
	_ = w.failed(r.container, plan.ReasonErrImagePull, r.err)
}

// stopPulls cancels the pulls for a revision that is no longer desired.
func (w *worker) stopPulls() {
	for name, i := range w.images {
		if i.cancel != nil {
			i.cancel()
		}
		delete(w.images, name)
	}
}

// progress returns how far an image's pull is, for people.
func (w *worker) progress(i *image) string {
	if i.cancel == nil {
		return ""
	}
	p, _ := w.o.Images.Pulling(i.ref)
	return p.String()
}

// pullTick returns a channel that fires when the progress of pulls is to be published again, or nil
// if there are no pulls.
func (w *worker) pullTick() <-chan time.Time {
	for _, i := range w.images {
		if i.cancel != nil {
			return time.After(pullPeriod)
		}
	}
	return nil
}
