package pull

import (
	"context"
	"errors"
	"os"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/transfer"
	store "github.com/containerd/containerd/v2/core/transfer/image"
	origin "github.com/containerd/containerd/v2/core/transfer/registry"
	"github.com/containerd/platforms"
	"github.com/distribution/reference"

	registry "podrun.io/podrun/internal/image"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/images/unpacked"
)

// transfers reports whether containerd can fetch images itself exactly as podrun would; the content
// is then not copied from podrun to containerd. It is false if podrun has registry or proxy
// settings: containerd does not have them, because it may be in another mount namespace and has its
// own environment.
func (p *Puller) transfers() bool {
	if !p.o.Client.Transfers || p.o.Client.Snapshotter != daemon.Overlayfs {
		return false
	}
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
		if os.Getenv(name) != "" {
			return false
		}
	}
	settings, err := os.ReadDir(p.o.HostsDir)
	return len(settings) == 0 && (err == nil || os.IsNotExist(err))
}

// transfer lets containerd fetch and unpack an image. If it fails, nothing is lost: what was
// fetched is present for a pull in another way. After a refusal, for which daemon.IsRefused returns
// true, podrun would get the same answer, or must not try.
func (p *Puller) transfer(
	ctx context.Context, named reference.Named, keys *registry.Keyring, labels map[string]string, meter *registry.Meter,
) (images.Image, error) {
	name := named.String()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	from, err := origin.NewOCIRegistry(ctx, name, origin.WithCredentials(credentialHelper(
		func(host string) (string, string, error) {
			user, secret, err := keys.For(ctx, host)
			if err != nil {
				cancel(err) // the service would wait for an answer
			}
			return user, secret, err
		})))
	if err != nil {
		return images.Image{}, err
	}
	platform := platforms.DefaultSpec()
	to := store.NewStore(name, store.WithImageLabels(labels),
		store.WithPlatforms(platform), store.WithManifestLimit(1), store.WithUnpack(platform, p.o.Client.Snapshotter))
	gauge := gauge{meter: meter, at: map[string]int64{}, refuse: cancel}
	if err := p.o.Client.Transfer(ctx, from, to, transfer.WithProgress(gauge.read)); err != nil {
		return images.Image{}, daemon.TransferError(errors.Join(err, context.Cause(ctx)))
	}
	return p.o.Client.ImageService().Get(ctx, name)
}

// credentialHelper answers containerd's requests for credentials for a host.
type credentialHelper func(host string) (user, secret string, err error)

// GetCredentials implements registry.CredentialHelper.
func (a credentialHelper) GetCredentials(_ context.Context, _, host string) (origin.Credentials, error) {
	user, secret, err := a(host)
	return origin.Credentials{Host: host, Username: user, Secret: secret}, err
}

// gauge reports containerd's progress events to a meter. The events arrive one after the other.
type gauge struct {
	meter *registry.Meter
	at    map[string]int64
	// refuse ends the transfer.
	refuse context.CancelCauseFunc
}

func (g gauge) read(p transfer.Progress) {
	if p.Desc != nil {
		if err := unpacked.CheckSize(*p.Desc); err != nil {
			g.refuse(err) // containerd would decode it when it is fetched
		}
	}
	if p.Desc == nil || !images.IsLayerType(p.Desc.MediaType) {
		return
	}
	digest := p.Desc.Digest.String()
	g.meter.Expect(digest, p.Desc.Size)
	switch p.Event {
	case "downloading":
		g.meter.At(digest, p.Progress, int(max(p.Progress-g.at[digest], 0)))
		g.at[digest] = p.Progress
	case "complete", "already exists", "extracting", "extracted":
		g.meter.At(digest, p.Desc.Size, int(max(p.Desc.Size-g.at[digest], 0)))
		g.at[digest] = p.Desc.Size
		g.meter.Done(digest)
	}
}
