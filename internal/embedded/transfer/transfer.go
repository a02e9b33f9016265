// Package transfer keeps what one registry answers, or does not answer, from the other pulls of podrun's own containerd
// and from its memory. It fetches nothing itself: it gives containerd's transfer service a registry with limits.
//
// Begin reading at Limit.
package transfer

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	api "github.com/containerd/containerd/api/types/transfer"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/containerd/v2/core/streaming"
	"github.com/containerd/containerd/v2/core/transfer"
	origin "github.com/containerd/containerd/v2/core/transfer/registry"
	"github.com/containerd/typeurl/v2"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/semaphore"

	"podrun.io/podrun/internal/image/registryhosts"
)

// fetchedAtOnce is how many contents of one image are fetched at the same time.
const fetchedAtOnce = 3

// Limit returns a service that fetches from registries as to does, but with a limit of downloads for each image, where
// to has one for all of them together: a registry that sends nothing would stop the pulls from every other.
func Limit(to transfer.Transferrer) transfer.Transferrer { return limited{to} }

type limited struct{ transfer.Transferrer }

// Transfer implements transfer.Transferrer.
func (l limited) Transfer(ctx context.Context, from, to any, options ...transfer.Opt) error {
	if whole, ok := from.(*origin.OCIRegistry); ok {
		if _, ok := to.(transfer.ImageStorer); ok {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			own, err := newRegistry(ctx, whole)
			if err != nil {
				return err
			}
			return l.Transferrer.Transfer(ctx, own, to, options...)
		}
	}
	return l.Transferrer.Transfer(ctx, from, to, options...)
}

// registry is containerd's OCIRegistry of one transfer, with another resolver.
type registry struct {
	reference string
	resolver  remotes.Resolver
}

// newRegistry returns a registry with whole's reference, headers and credentials. They are read as a client would send
// them, because OCIRegistry does not show them in another way.
func newRegistry(ctx context.Context, whole *origin.OCIRegistry) (*registry, error) {
	var logins link
	sent, err := whole.MarshalAny(ctx, &logins)
	if err != nil {
		return nil, err
	}
	var s api.OCIRegistry
	if err := typeurl.UnmarshalTo(sent, &s); err != nil {
		return nil, err
	}
	hosts := config.HostOptions{DefaultScheme: s.GetResolver().GetDefaultScheme()}
	if dir := s.GetResolver().GetHostDir(); dir != "" {
		hosts.HostDir = config.HostDirFromRoot(dir)
	}
	if s.GetResolver().GetAuthStream() != "" {
		hosts.Credentials = func(host string) (string, string, error) { return logins.ask(ctx, s.Reference, host) }
	}
	headers := http.Header{}
	for name, value := range s.GetResolver().GetHeaders() {
		headers.Set(name, value)
	}
	return &registry{reference: s.Reference, resolver: docker.NewResolver(docker.ResolverOptions{
		Hosts: registryhosts.Bounded(ctx, hosts), Headers: headers,
	})}, nil
}

// String implements fmt.Stringer, for containerd's progress.
func (r *registry) String() string { return fmt.Sprintf("OCI Registry (%s)", r.reference) }

// Image returns the reference, for containerd's progress.
func (r *registry) Image() string { return r.reference }

// Resolve implements transfer.ImageResolver.
func (r *registry) Resolve(ctx context.Context) (string, imagespec.Descriptor, error) {
	return r.resolver.Resolve(ctx, r.reference)
}

// Fetcher implements transfer.ImageFetcher.
func (r *registry) Fetcher(ctx context.Context, ref string) (transfer.Fetcher, error) {
	return r.resolver.Fetcher(ctx, ref)
}

// SetResolverOptions implements transfer.ImageResolverOptionSetter. The limit that containerd sets is replaced.
func (r *registry) SetResolverOptions(options ...transfer.ImageResolverOption) {
	if resolver, ok := r.resolver.(remotes.ResolverWithOptions); ok {
		own := transfer.WithDownloadLimiter(semaphore.NewWeighted(fetchedAtOnce))
		resolver.SetOptions(append(options, own)...)
	}
}

// link is a stream within the process, on which an OCIRegistry answers requests for credentials. The zero value is
// ready to be created.
type link struct {
	ctx            context.Context
	asked, answers chan typeurl.Any
	// request is held by the one that waits for its answer.
	request *semaphore.Weighted
}

// Create implements streaming.StreamCreator.
func (l *link) Create(ctx context.Context, _ string) (streaming.Stream, error) {
	if l.ctx != nil {
		return nil, errors.New("a registry has one stream, for credentials")
	}
	*l = link{ctx, make(chan typeurl.Any), make(chan typeurl.Any), semaphore.NewWeighted(1)}
	return l, nil
}

// Send implements streaming.Stream, for the OCIRegistry.
func (l *link) Send(answer typeurl.Any) error { return pass(l.ctx, l.answers, answer) }

// Recv implements streaming.Stream, for the OCIRegistry.
func (l *link) Recv() (typeurl.Any, error) { return receive(l.ctx, l.asked) }

// Close implements streaming.Stream. The stream ends with its context.
func (*link) Close() error { return nil }

// ask asks the OCIRegistry for credentials.
func (l *link) ask(ctx context.Context, ref, host string) (user, secret string, err error) {
	if err := l.request.Acquire(ctx, 1); err != nil {
		return "", "", err
	}
	defer l.request.Release(1)
	request, err := typeurl.MarshalAny(&api.AuthRequest{Host: host, Reference: ref})
	if err != nil {
		return "", "", err
	}
	if err := pass(ctx, l.asked, request); err != nil {
		return "", "", err
	}
	reply, err := receive(ctx, l.answers)
	if err != nil {
		return "", "", err
	}
	var login api.AuthResponse
	if err := typeurl.UnmarshalTo(reply, &login); err != nil {
		return "", "", err
	}
	if login.AuthType == api.AuthType_HEADER { // which containerd's resolver cannot use either
		return "", "", nil
	}
	return login.Username, login.Secret, nil
}

func pass(ctx context.Context, to chan<- typeurl.Any, what typeurl.Any) error {
	select {
	case to <- what:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func receive(ctx context.Context, from <-chan typeurl.Any) (typeurl.Any, error) {
	select {
	case what := <-from:
		return what, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
