// Package pull resolves and pulls the images of one pod's containers and image volumes in
// goroutines of its own, so that the pod's worker does not wait. It knows for each image whether it
// is ready, and reports failed pulls; it does not decide when an image is needed or a pull is tried
// again: package plan does. Package image has the credentials and the pulls that several pods
// share.
//
// Begin reading with Puller.Ensure.
package pull

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile/record"
	"podrun.io/podrun/internal/reconcile/revision"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/trace"
	"podrun.io/podrun/internal/timeline"
)

// Puller resolves and pulls the images of one pod's containers and volumes. Pulls run in their own
// goroutines, so that the pod's other containers are served meanwhile.
type Puller struct {
	o Options
	// Results delivers the pulls that have ended, for Finished.
	Results chan Result
	all     map[string]*image // by container name or record.VolumeImage
}

// Options configure the Puller of one pod.
type Options struct {
	Images runtime.Images
	// PreferLocal uses a local image if an image with the pull policy Always cannot be pulled.
	PreferLocal bool
	Recorder    *record.Recorder
	Failures    *record.Failures
	// Began records the pulls.
	Began timeline.Begins
	// Goroutines waits for the pulls that run.
	Goroutines *sync.WaitGroup
	Log        *slog.Logger
}

// New returns a Puller that has no image yet.
func New(o Options) *Puller {
	return &Puller{o: o, Results: make(chan Result), all: map[string]*image{}}
}

// image is the state of one container's image: it is being pulled while cancel is set, else it is
// ready.
type image struct {
	cancel context.CancelFunc
	ref    string
	ready  pod.Image
}

// pullPeriod is how often the progress of pulls is published in the status.
const pullPeriod = time.Second

// Result is the result of a pull.
type Result struct {
	container string
	ref       string
	elapsed   time.Duration
	of        *image
	ready     pod.Image
	// instead is why the pull failed, if ready is a local image that is used in its place.
	instead error
	err     error
}

// Ensure resolves the local image of a container or starts a pull, as the pull policy says.
func (u *Puller) Ensure(ctx context.Context, s revision.State, name string) error {
	c := pod.FindContainer(s.Pod, name)
	if c == nil {
		return fmt.Errorf("finding image of %s: not what was planned", name)
	}
	if c.ImagePullPolicy != v1.PullAlways {
		ready, err := u.o.Images.Resolve(ctx, c.Image)
		if err == nil {
			u.all[name] = &image{ready: ready}
			u.o.Recorder.Record(name, record.Normal, "Pulled",
				fmt.Sprintf("Image %q is present on this machine already", c.Image))
			return nil
		}
		if !errors.Is(err, runtime.ErrNotFound) {
			return err
		}
		if c.ImagePullPolicy == v1.PullNever {
			return neverPull(
				//nolint:staticcheck // Kubernetes' words
				fmt.Errorf("Container image %q is not present with pull policy of Never", c.Image))
		}
	}
	u.pull(ctx, s, name, c.Image)
	return nil
}

// neverPull returns the error for an image that is not present and not pulled.
func neverPull(err error) error {
	return &runtime.ReasonError{Reason: plan.ReasonErrImageNeverPull, Err: &runtime.PermanentError{
		Fix: "load it with podrun images load, or use another imagePullPolicy", Err: err,
	}}
}

// pull starts a pull of the image ref of a container or volume.
func (u *Puller) pull(ctx context.Context, s revision.State, name, ref string) {
	pctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	i := &image{cancel: cancel, ref: ref}
	u.all[name] = i
	logins := u.logins(s)
	u.o.Log.Info("pulling image", "container", name, "image", ref)
	u.o.Recorder.Record(name, record.Normal, "Pulling", fmt.Sprintf("Pulling image %q", ref))
	began, span := time.Now(), u.o.Began(name, timeline.Pull, ref)
	pctx = trace.With(pctx, trace.Trace{Fetched: func(at time.Time) { span.Becomes(timeline.Unpack, ref, at) }})
	u.o.Goroutines.Go(func() {
		defer cancel()
		r := Result{container: name, of: i, ref: ref}
		r.ready, r.err = u.o.Images.Pull(pctx, ref, logins...)
		span.End(r.err)
		if r.err != nil && pctx.Err() == nil && u.o.PreferLocal {
			if present, missing := u.o.Images.Resolve(pctx, ref); missing == nil {
				u.o.Log.Warn("image pull failed; using the local image", "container", name, "image", ref, "err", r.err)
				r.ready, r.instead, r.err = present, r.err, nil
			}
		}
		r.elapsed = time.Since(began)
		select {
		case u.Results <- r:
		case <-pctx.Done():
		}
	})
}

// logins returns the contents of the pod's imagePullSecrets. A missing Secret is skipped, as by the
// kubelet: the image may not need it.
func (u *Puller) logins(s revision.State) [][]byte {
	texts, missing := s.Objects.Logins(s.Pod)
	for _, name := range missing {
		u.o.Log.Warn("image pull secret not found; pulling without it", "secret", name)
	}
	return texts
}

// Finished stores the result of a pull for pod p, unless the pull has been cancelled meanwhile.
func (u *Puller) Finished(p *v1.Pod, r Result) {
	if u.all[r.container] != r.of {
		return
	}
	delete(u.all, r.container)
	u.o.Failures.Retry(record.ReasonPulling) // the containers that wait for a volume's image
	if r.err == nil {
		u.all[r.container] = &image{ready: r.ready}
		if r.instead != nil {
			u.o.Recorder.Record(r.container, record.Warning, "Failed",
				fmt.Sprintf("Failed to pull image %q, starting from the one that is present: %v", r.ref, r.instead))
		} else {
			u.o.Recorder.Record(r.container, record.Normal, "Pulled",
				fmt.Sprintf("Pulled image %q in %s", r.ref, r.elapsed.Round(time.Millisecond)))
		}
	}
	if errors.Is(r.err, runtime.ErrUnavailable) {
		// Record it as a usual failure, so that the next pull backs off.
		r.err = errors.New(r.err.Error())
	}
	_ = u.o.Failures.Keep(p, r.container, plan.ReasonErrImagePull, r.err)
}

// Stop cancels the pulls for a revision that is no longer desired, and forgets its images.
func (u *Puller) Stop() {
	for name, i := range u.all {
		if i.cancel != nil {
			i.cancel()
		}
		delete(u.all, name)
	}
}

// Restart cancels the pull for a container and those of the pod's volumes, if there are any, so that the images are
// resolved again.
func (u *Puller) Restart(container string) {
	for name, i := range u.all {
		if i.cancel != nil && (name == container || strings.HasPrefix(name, record.VolumeImage(""))) {
			i.cancel()
			delete(u.all, name)
		}
	}
}

// Use returns the image of a container that is about to be started, and forgets it. ok is false if the
// image is not ready.
func (u *Puller) Use(container string) (ready pod.Image, ok bool) {
	i := u.all[container]
	if i == nil || i.cancel != nil {
		return pod.Image{}, false
	}
	delete(u.all, container)
	return i.ready, true
}

// States returns the images for the planner.
func (u *Puller) States() map[string]plan.Image {
	states := map[string]plan.Image{}
	for name, i := range u.all {
		state := plan.Image{Pulling: i.cancel != nil, Ready: i.cancel == nil}
		if state.Pulling {
			p, _ := u.o.Images.Pulling(i.ref)
			state.Progress = p.String() // for people
		}
		states[name] = state
	}
	return states
}

// Tick returns a channel that fires when the progress of pulls is to be published again, or nil if
// there are no pulls.
func (u *Puller) Tick() <-chan time.Time {
	for _, i := range u.all {
		if i.cancel != nil {
			return time.After(pullPeriod)
		}
	}
	return nil
}
