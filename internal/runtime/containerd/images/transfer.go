package images

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/transfer"
	store "github.com/containerd/containerd/v2/core/transfer/image"
	origin "github.com/containerd/containerd/v2/core/transfer/registry"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/distribution/reference"

	registry "podrun.io/podrun/internal/image"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
)

// transfers reports whether containerd can fetch images itself exactly as podrun would; the content
// is then not copied from podrun to containerd. It is false if podrun has registry or proxy
// settings: containerd does not have them, because it may be in another mount namespace and has its
// own environment.
func (s *Store) transfers() bool {
	if !s.client.Transfers || s.client.Snapshotter != daemon.Overlayfs {
		return false
	}
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
		if os.Getenv(name) != "" {
			return false
		}
	}
	settings, err := os.ReadDir(s.o.HostsDir)
	return len(settings) == 0 && (err == nil || os.IsNotExist(err))
}

// transfer lets containerd fetch and unpack an image. If it fails, nothing is lost: what was
// fetched is present for a pull in another way.
func (s *Store) transfer(
	ctx context.Context, named reference.Named, logins registry.Logins, meter *registry.Meter,
) (images.Image, error) {
	name := named.String()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	from, err := origin.NewOCIRegistry(ctx, name, origin.WithCredentials(credentialHelper(
		func(host string) (string, string, error) {
			user, secret, err := s.login(logins, host, named)
			if err != nil {
				cancel(err) // the service would wait for an answer
			}
			return user, secret, err
		})))
	if err != nil {
		return images.Image{}, err
	}
	platform := platforms.DefaultSpec()
	to := store.NewStore(name,
		store.WithPlatforms(platform), store.WithManifestLimit(1), store.WithUnpack(platform, s.client.Snapshotter))
	gauge := gauge{meter: meter, at: map[string]int64{}}
	if err := s.client.Transfer(ctx, from, to, transfer.WithProgress(gauge.read)); err != nil {
		return images.Image{}, errors.Join(err, context.Cause(ctx))
	}
	return s.client.ImageService().Get(ctx, name)
}

// refusal returns the error of a transfer if podrun would get the same answer, or must not try: the
// registry refused the request, or one of containerd's image verifiers rejected the image.
// Otherwise it returns nil. HTTP status 416 (range not satisfiable) is no refusal: it only means
// that the partially fetched content is corrupt.
func refusal(err error) error {
	text := err.Error()
	if errdefs.IsNotFound(err) {
		return err
	}
	status := regexp.MustCompile(`unexpected status from \S+ request to \S+: (\d+)`).FindStringSubmatch(text)
	if status != nil && status[1] != "416" || strings.Contains(text, "image verifier ") {
		// The text has the registry's answer twice: as the error and as what the error consists of.
		return errors.New(strings.Join(slices.Compact(strings.Split(text, "\n")), "\n"))
	}
	return nil
}

// login returns podrun's credentials for a registry: those of the pod come before those of the
// node.
func (s *Store) login(logins registry.Logins, host string, named reference.Named) (user, secret string, err error) {
	if user, secret, found := logins.For(host, reference.Path(named)); found {
		return user, secret, nil
	}
	return s.o.Credentials.For(host, reference.Path(named))
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
}

func (g gauge) read(p transfer.Progress) {
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
