package images

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	dockerconfig "github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/distribution/reference"
	"golang.org/x/sync/semaphore"

	registry "podrun.io/podrun/internal/image"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
)

const (
	reasonErrImagePull     = "ErrImagePull"
	reasonInvalidImageName = "InvalidImageName"
	pullLayersAtOnce       = 3
)

// Pull implements runtime.Images. What an interrupted pull has fetched is not fetched again.
func (s *Store) Pull(ctx context.Context, ref string, logins ...[]byte) (pod.Image, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return pod.Image{}, &runtime.ReasonError{
			Reason: reasonInvalidImageName, Err: fmt.Errorf("image %q: %w", ref, err),
		}
	}
	return s.flights.Pull(ctx, named.String()+registry.Logins(logins).Key(),
		func(ctx context.Context, meter *registry.Meter) (pod.Image, error) {
			ctx = s.client.Context(ctx)
			ctx, fetching, err := s.fetch(ctx, named.String())
			if err != nil {
				return pod.Image{}, err
			}
			pulled, err := s.pull(ctx, named, logins, meter)
			for dropped := map[string]bool{}; err != nil && s.dropCorrupt(ctx, err, dropped); {
				pulled, err = s.pull(ctx, named, logins, meter)
			}
			fetching.end(ctx, err == nil || !fetching.before && !meter.Progress(time.Now()).HasTotal())
			return pulled, err
		})
}

// pull makes one attempt to fetch and unpack the image.
func (s *Store) pull(
	ctx context.Context, named reference.Named, logins registry.Logins, meter *registry.Meter,
) (pod.Image, error) {
	pulled, err := s.obtain(ctx, named, logins, meter)
	var content *Image
	if err == nil {
		content, err = s.ready(ctx, pulled)
	}
	if err != nil {
		err = daemon.Mapped("pulling image "+named.String(), err)
		if daemon.IsInterrupted(ctx, err) {
			return pod.Image{}, err
		}
		return pod.Image{}, &runtime.ReasonError{Reason: reasonErrImagePull, Err: err}
	}
	return portImage(pulled, content), nil
}

// obtain lets containerd fetch the image, if it can. If that fails, podrun fetches the rest itself,
// unless the registry would give it the same answer.
func (s *Store) obtain(
	ctx context.Context, named reference.Named, logins registry.Logins, meter *registry.Meter,
) (images.Image, error) {
	if s.transfers() {
		pulled, err := s.transfer(ctx, named, logins, meter)
		if err == nil || ctx.Err() != nil {
			return pulled, err
		}
		if last := refusal(err); last != nil {
			return images.Image{}, last
		}
		s.o.Log.Debug("containerd cannot fetch the image; podrun fetches it", "image", named.String(), "err", err)
	}
	hosts := dockerconfig.HostOptions{
		HostDir:     dockerconfig.HostDirFromRoot(s.o.HostsDir),
		Credentials: func(host string) (string, string, error) { return s.login(logins, host, named) },
	}
	pulled, err := s.client.Pull(ctx, named.String(),
		client.WithResolver(metered{
			docker.NewResolver(docker.ResolverOptions{Hosts: dockerconfig.ConfigureHosts(ctx, hosts)}), meter,
		}),
		client.WithImageHandlerWrapper(metering(meter)),
		client.WithPullUnpack, client.WithPullSnapshotter(s.client.Snapshotter),
		client.WithDownloadLimiter(semaphore.NewWeighted(pullLayersAtOnce)))
	if err != nil {
		return images.Image{}, err
	}
	return pulled.Metadata(), nil
}
