// Package registryhosts makes the hosts of a registry for containerd's resolver, so that what a registry answers to a
// request for a token has a size. It does not fetch images.
//
// Begin reading at Bounded.
package registryhosts

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
)

// MaxToken is the maximum size in bytes of an answer to a request for a token. Tokens have a few KiB; containerd's
// resolver would decode an answer of any length in memory.
const MaxToken = 1 << 20

// Bounded returns the hosts that o configures. Their authorizers read at most MaxToken of an answer.
func Bounded(ctx context.Context, o config.HostOptions) docker.RegistryHosts {
	configured := config.ConfigureHosts(ctx, o)
	return func(name string) ([]docker.RegistryHost, error) {
		hosts, err := configured(name)
		for i, host := range hosts {
			client := *host.Client
			client.Transport = bounded{client.Transport}
			options := []docker.AuthorizerOpt{docker.WithAuthClient(&client)}
			if o.Credentials != nil {
				options = append(options, docker.WithAuthCreds(o.Credentials))
			}
			if len(host.Header) != 0 {
				options = append(options, docker.WithAuthHeader(host.Header))
			}
			hosts[i].Authorizer = docker.NewDockerAuthorizer(append(options, o.AuthorizerOpts...)...)
		}
		return hosts, err
	}
}

// bounded is a transport whose answers cannot be read beyond MaxToken.
type bounded struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(q *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(q)
	if err == nil {
		answer.Body = &body{ReadCloser: answer.Body, left: MaxToken}
	}
	return answer, err
}

type body struct {
	io.ReadCloser
	left int
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, fmt.Errorf("the answer is longer than %d bytes", MaxToken)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
