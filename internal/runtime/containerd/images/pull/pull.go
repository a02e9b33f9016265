// Package pull fetches images from registries: containerd fetches them itself if it can, else
// podrun does with containerd's client. It continues interrupted pulls, and reports their progress.
// Concurrent pulls of an image are merged by image.PullGroup.
//
// It does not decide when an image is pulled. Begin reading at Puller.
package pull

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	dockerconfig "github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/distribution/reference"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/semaphore"

	registry "podrun.io/podrun/internal/image"
	"podrun.io/podrun/internal/image/registryhosts"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/images/fetched"
	"podrun.io/podrun/internal/runtime/containerd/images/unpacked"
)

const (
	reasonErrImagePull     = "ErrImagePull"
	reasonInvalidImageName = "InvalidImageName"
	pullLayersAtOnce       = 3
)

// LabelPinned is the label of images that no garbage collection may remove, as in containerd's CRI
// plugin.
const LabelPinned = "io.cri-containerd.pinned"

// Options configure a Puller. All but Credentials are required.
type Options struct {
	Client *daemon.Client
	Finder *unpacked.Finder
	Leases *fetched.Leases
	// HostsDir is the directory with the configuration of registries.
	HostsDir string
	// Credentials are the node's credentials for registries.
	Credentials registry.Credentials
	Log         *slog.Logger
}

// Puller pulls images. Its methods may be called concurrently.
type Puller struct {
	o     Options
	pulls registry.PullGroup
}

// New returns a Puller.
func New(o Options) *Puller { return &Puller{o: o} }

// Pull implements runtime.Images. What an interrupted pull has fetched is not fetched again.
func (p *Puller) Pull(ctx context.Context, ref string, logins ...[]byte) (pod.Image, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return pod.Image{}, runtime.Permanent(reasonInvalidImageName, fmt.Errorf("image %q: %w", ref, err))
	}
	return p.pulls.Pull(ctx, named.String()+registry.Logins(logins).Key(),
		func(ctx context.Context, meter *registry.Meter) (pod.Image, error) {
			ctx = p.o.Client.Context(ctx)
			ctx, lease, err := p.o.Leases.Begin(ctx, named.String())
			if err != nil {
				return pod.Image{}, err
			}
			keys := p.keyring(named, logins)
			pulled, err := p.pull(ctx, named, keys, meter)
			for dropped := map[string]bool{}; err != nil && p.dropCorrupt(ctx, err, dropped); {
				pulled, err = p.pull(ctx, named, keys, meter)
			}
			lease.End(ctx, err == nil || !lease.Resumed && !meter.Progress(time.Now()).HasTotal())
			return pulled, err
		})
}

// pull makes one attempt to fetch and unpack the image, with one of keys after the other.
func (p *Puller) pull(
	ctx context.Context, named reference.Named, keys *registry.Keyring, meter *registry.Meter,
) (pod.Image, error) {
	var pulled images.Image
	err := p.withEach(ctx, keys, func() (err error) {
		pulled, err = p.obtain(ctx, named, keys, meter)
		return err
	})
	var content *unpacked.Image
	fix := daemon.RefusalFix(err)
	if err == nil {
		content, err = p.o.Finder.Ready(ctx, pulled)
	}
	if err != nil {
		err = daemon.FetchError(daemon.Mapped("pulling image "+named.String(), err))
		if daemon.IsInterrupted(ctx, err) {
			return pod.Image{}, err
		}
		if fix != "" {
			err = &runtime.PermanentError{Fix: fix, Err: err}
		}
		return pod.Image{}, &runtime.ReasonError{Reason: reasonErrImagePull, Err: err}
	}
	return content.Named(pulled), nil
}

// obtain lets containerd fetch the image, if it can. If that fails, podrun fetches the rest itself,
// unless the registry would give it the same answer. podrun also fetches the layers that containerd
// leaves out because they are unpacked already, without which the image cannot be saved.
func (p *Puller) obtain(
	ctx context.Context, named reference.Named, keys *registry.Keyring, meter *registry.Meter,
) (images.Image, error) {
	labels, err := p.kept(ctx, named)
	if err != nil {
		return images.Image{}, err
	}
	if p.transfers() {
		pulled, err := p.transfer(ctx, named, keys, labels, meter)
		if err == nil {
			err = unpacked.CheckStored(ctx, p.o.Client, pulled)
		}
		err = registry.Masked(err)
		if err == nil || ctx.Err() != nil || daemon.IsRefused(err) {
			return pulled, err
		}
		p.o.Log.Debug("containerd cannot fetch the image; podrun fetches it", "image", named.String(), "err", err)
	}
	pulled, err := p.o.Client.Pull(ctx, named.String(),
		client.WithResolver(metered{p.resolver(ctx, keys), meter}),
		client.WithImageHandlerWrapper(metering(meter)),
		client.WithPullUnpack, client.WithPullSnapshotter(p.o.Client.Snapshotter), client.WithPullLabels(labels),
		client.WithUnpackOpts([]client.UnpackOpt{client.WithUnpackFetchAllContent()}),
		client.WithDownloadLimiter(semaphore.NewWeighted(pullLayersAtOnce)))
	if err != nil {
		return images.Image{}, registry.Masked(err)
	}
	return pulled.Metadata(), nil
}

// kept returns the labels of the image that the name has referred to so far that the name keeps: a pull replaces all.
func (p *Puller) kept(ctx context.Context, named reference.Named) (map[string]string, error) {
	before, err := p.o.Client.ImageService().Get(ctx, named.String())
	if err != nil && !daemon.IsNotFound(err) {
		return nil, err
	}
	if value, pinned := before.Labels[LabelPinned]; pinned {
		return map[string]string{LabelPinned: value}, nil
	}
	return nil, nil
}

// resolver returns what finds and fetches an image in its registry, with the present one of keys.
func (p *Puller) resolver(ctx context.Context, keys *registry.Keyring) remotes.Resolver {
	hosts := dockerconfig.HostOptions{
		HostDir:     dockerconfig.HostDirFromRoot(p.o.HostsDir),
		Credentials: func(host string) (string, string, error) { return keys.For(ctx, host) },
	}
	return docker.NewResolver(docker.ResolverOptions{Hosts: registryhosts.Bounded(ctx, hosts)})
}

// RegistryDigest returns the digest of what the registry has under the name of an image now. It fetches nothing but
// that.
func (p *Puller) RegistryDigest(ctx context.Context, ref string, logins ...[]byte) (string, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return "", runtime.Permanent(reasonInvalidImageName, fmt.Errorf("image %q: %w", ref, err))
	}
	ctx = p.o.Client.Context(ctx) // its library logs what the error says
	keys := p.keyring(named, logins)
	var found imagespec.Descriptor
	err = p.withEach(ctx, keys, func() (err error) {
		_, found, err = p.resolver(ctx, keys).Resolve(ctx, named.String())
		return registry.Masked(err)
	})
	if err != nil {
		return "", daemon.Mapped("asking the registry for image "+named.String(), err)
	}
	return found.Digest.String(), nil
}
