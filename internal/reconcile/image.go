package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// puller resolves and pulls the images of one pod's containers and volumes. Pulls run in their own
// goroutines, so that the pod's other containers are served meanwhile.
type puller struct {
	images      runtime.Images
	preferLocal bool
	recorder    *recorder
	failures    *failures
	log         *slog.Logger
	beside      *sync.WaitGroup
	all         map[string]*image // by container name or imageOf
	results     chan pullResult
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

// pullResult is the result of a pull.
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

// ensure resolves the local image of a container or starts a pull, as the pull policy says.
func (u *puller) ensure(ctx context.Context, s state, name string) error {
	c := container(s.pod, name)
	if c == nil {
		return fmt.Errorf("finding image of %s: not what was planned", name)
	}
	if c.ImagePullPolicy != v1.PullAlways {
		ready, err := u.images.Resolve(ctx, c.Image)
		if err == nil {
			u.all[name] = &image{ready: ready}
			u.recorder.record(name, normal, "Pulled",
				fmt.Sprintf("Image %q is present on this machine already", c.Image))
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
	u.pull(ctx, s, name, c.Image)
	return nil
}

// pull starts a pull of the image ref of a container or volume.
func (u *puller) pull(ctx context.Context, s state, name, ref string) {
	pctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	i := &image{cancel: cancel, ref: ref}
	u.all[name] = i
	logins := u.logins(s)
	u.log.Info("pulling image", "container", name, "image", ref)
	u.recorder.record(name, normal, "Pulling", fmt.Sprintf("Pulling image %q", ref))
	began := time.Now()
	u.beside.Go(func() {
		defer cancel()
		r := pullResult{container: name, of: i, ref: ref}
		r.ready, r.err = u.images.Pull(pctx, ref, logins...)
		if r.err != nil && pctx.Err() == nil && u.preferLocal {
			if present, missing := u.images.Resolve(pctx, ref); missing == nil {
				u.log.Warn("image pull failed; using the local image", "container", name, "image", ref, "err", r.err)
				r.ready, r.instead, r.err = present, r.err, nil
			}
		}
		r.elapsed = time.Since(began)
		select {
		case u.results <- r:
		case <-pctx.Done():
		}
	})
}

// logins returns the contents of the pod's imagePullSecrets. A missing Secret is skipped, as by the
// kubelet: the image may not need it.
func (u *puller) logins(s state) [][]byte {
	var texts [][]byte
	for _, ref := range s.pod.Spec.ImagePullSecrets {
		secret := s.objects.Secrets[pod.Key{Namespace: s.pod.Namespace, Name: ref.Name}]
		if secret == nil {
			u.log.Warn("image pull secret not found; pulling without it", "secret", ref.Name)
			continue
		}
		for _, key := range []string{v1.DockerConfigJsonKey, v1.DockerConfigKey} {
			if text, found := secret.Data[key]; found {
				texts = append(texts, text)
			}
		}
	}
	return texts
}

// finished stores the result of a pull for pod p, unless the pull has been cancelled meanwhile.
func (u *puller) finished(p *v1.Pod, r pullResult) {
	if u.all[r.container] != r.of {
		return
	}
	delete(u.all, r.container)
	u.failures.retry(reasonPulling) // the containers that wait for a volume's image
	if r.err == nil {
		u.all[r.container] = &image{ready: r.ready}
		if r.instead != nil {
			u.recorder.record(r.container, warning, "Failed",
				fmt.Sprintf("Failed to pull image %q, starting from the one that is present: %v", r.ref, r.instead))
		} else {
			u.recorder.record(r.container, normal, "Pulled",
				fmt.Sprintf("Pulled image %q in %s", r.ref, r.elapsed.Round(time.Millisecond)))
		}
	}
	if errors.Is(r.err, runtime.ErrUnavailable) {
		// Record it as a usual failure, so that the next pull backs off.
		r.err = errors.New(r.err.Error())
	}
	_ = u.failures.keep(p, r.container, plan.ReasonErrImagePull, r.err)
}

// stop cancels the pulls for a revision that is no longer desired, and forgets its images.
func (u *puller) stop() {
	for name, i := range u.all {
		if i.cancel != nil {
			i.cancel()
		}
		delete(u.all, name)
	}
}

// states returns the images for the planner.
func (u *puller) states() map[string]plan.Image {
	states := map[string]plan.Image{}
	for name, i := range u.all {
		state := plan.Image{Pulling: i.cancel != nil, Ready: i.cancel == nil}
		if state.Pulling {
			p, _ := u.images.Pulling(i.ref)
			state.Progress = p.String() // for people
		}
		states[name] = state
	}
	return states
}

// tick returns a channel that fires when the progress of pulls is to be published again, or nil if
// there are no pulls.
func (u *puller) tick() <-chan time.Time {
	for _, i := range u.all {
		if i.cancel != nil {
			return time.After(pullPeriod)
		}
	}
	return nil
}
