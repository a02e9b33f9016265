// Package registryhosts makes the hosts of a registry for containerd's resolver, so that a registry's answers take a
// bounded amount of memory, and what is configured for a host is for that host alone. It does not fetch images.
//
// Begin reading at Bounded.
package registryhosts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
)

// MaxToken is the maximum size in bytes of an answer to a request for a token. Tokens have a few KiB; containerd's
// resolver would decode an answer of any length in memory.
const MaxToken = 1 << 20

// Bounded returns the hosts that o configures. Their authorizers read at most MaxToken of an answer, and their other
// answers are encoded once at most, by gzip or deflate. What a hosts.toml file configures for a host does not apply to
// others to which a registry leads. An invalid hosts.toml file is an error.
func Bounded(ctx context.Context, o config.HostOptions) docker.RegistryHosts {
	return func(name string) ([]docker.RegistryHost, error) {
		hosts, err := configure(ctx, o, name)
		transports := scope(hosts)
		for i, host := range hosts {
			content, client := *host.Client, *host.Client
			content.Transport, client.Transport = simple{transports[i]}, bounded{transports[i]}
			hosts[i].Client = &content
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

// simple is a transport that refuses answers with an encoding other than gzip or deflate, or with several. To decode
// zstd, containerd's resolver would take up to 1 GiB for a few KB, and the same again for each time that an answer says
// that it is encoded.
type simple struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s simple) RoundTrip(q *http.Request) (*http.Response, error) {
	const header = "Accept-Encoding"
	if q.Header.Get(header) != "" {
		q = q.Clone(q.Context())
		q.Header.Set(header, "gzip, deflate;q=0.5")
	}
	answer, err := s.RoundTripper.RoundTrip(q)
	if err != nil {
		return nil, err
	}
	switch strings.ToLower(strings.TrimSpace(answer.Header.Get("Content-Encoding"))) {
	case "", "identity", "gzip", "deflate":
		return answer, nil
	}
	answer.Body.Close()
	return nil, errors.New("the registry's answer has an encoding that it was not asked for")
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
