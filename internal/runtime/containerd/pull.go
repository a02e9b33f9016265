package containerd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	dockerconfig "github.com/containerd/containerd/v2/core/remotes/docker/config"
	remotes "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"golang.org/x/sync/semaphore"

	registry "podrun.io/podrun/internal/image"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

const (
	reasonErrImagePull     = "ErrImagePull"
	reasonInvalidImageName = "InvalidImageName"
	pullLayersAtOnce       = 3
)

// Pull implements runtime.Images. What an interrupted pull fetched is not fetched again.
func (r *Runtime) Pull(ctx context.Context, ref string, logins ...[]byte) (pod.Image, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return pod.Image{}, &runtime.ReasonError{
			Reason: reasonInvalidImageName, Err: fmt.Errorf("image %q: %w", ref, err),
		}
	}
	return r.flights.Pull(ctx, named.String()+registry.Logins(logins).Key(), func(ctx context.Context, meter *registry.Meter) (pod.Image, error) {
		ctx = r.context(ctx)
		ctx, fetching, err := r.fetch(ctx, named.String())
		if err != nil {
			return pod.Image{}, err
		}
		pulled, err := r.pull(ctx, named, logins, meter)
		if err != nil && r.dropSpoilt(ctx, err) {
			pulled, err = r.pull(ctx, named, logins, meter)
		}
		fetching.end(ctx, err == nil || !fetching.before && !meter.Progress(time.Now()).Known())
		return pulled, err
	})
}

// dropSpoilt removes what an earlier pull fetched in part, if the error says that it cannot be completed: its
// digest is wrong, or the registry has nothing to go on with. containerd itself would go on with it for
// ever. It reports whether anything was removed.
func (r *Runtime) dropSpoilt(ctx context.Context, err error) bool {
	var answer remotes.ErrUnexpectedStatus
	outOfRange := errors.As(err, &answer) && answer.StatusCode == http.StatusRequestedRangeNotSatisfiable
	if ctx.Err() != nil || !outOfRange && !errdefs.IsFailedPrecondition(err) {
		return false
	}
	named := regexp.MustCompile(`sha256:[0-9a-f]{64}`).FindAllString(err.Error(), -1)
	begun, err := r.client.ContentStore().ListStatuses(ctx)
	if err != nil {
		return false
	}
	dropped := false
	for _, status := range begun {
		_, digest, _ := strings.Cut(status.Ref, "-") // as layer-sha256:…
		if slices.Contains(named, digest) && r.client.ContentStore().Abort(ctx, status.Ref) == nil {
			r.Log.Info("what was fetched in part is spoilt and fetched again", "digest", digest)
			dropped = true
		}
	}
	return dropped
}

func (r *Runtime) pull(ctx context.Context, named reference.Named, logins registry.Logins, meter *registry.Meter) (pod.Image, error) {
	pulled, err := r.obtain(ctx, named, logins, meter)
	if err == nil {
		_, err = r.ready(ctx, pulled)
	}
	if err != nil {
		err = mapped("pulling image "+named.String(), err)
		if isInterrupted(ctx, err) {
			return pod.Image{}, err
		}
		return pod.Image{}, &runtime.ReasonError{Reason: reasonErrImagePull, Err: err}
	}
	return pod.Image{Name: pulled.Name, ID: imageID(pulled)}, nil
}

// obtain has containerd fetch the image, where it can. Where that fails podrun fetches it, what is left of it:
// it knows the registry's errors and what was spoilt.
func (r *Runtime) obtain(ctx context.Context, named reference.Named, logins registry.Logins, meter *registry.Meter) (images.Image, error) {
	if r.transfers() {
		pulled, err := r.transfer(ctx, named, logins, meter)
		if err == nil || ctx.Err() != nil {
			return pulled, err
		}
		r.Log.Debug("containerd cannot fetch an image itself", "image", named.String(), "why", err)
	}
	hosts := dockerconfig.HostOptions{
		HostDir:     dockerconfig.HostDirFromRoot(r.HostsDir),
		Credentials: func(host string) (string, string, error) { return r.login(logins, host, named) },
	}
	pulled, err := r.client.Pull(ctx, named.String(),
		client.WithResolver(metered{docker.NewResolver(docker.ResolverOptions{Hosts: dockerconfig.ConfigureHosts(ctx, hosts)}), meter}),
		client.WithImageHandlerWrapper(metering(meter)),
		client.WithPullUnpack, client.WithPullSnapshotter(r.Snapshotter),
		client.WithDownloadLimiter(semaphore.NewWeighted(pullLayersAtOnce)))
	if err != nil {
		return images.Image{}, err
	}
	return pulled.Metadata(), nil
}
