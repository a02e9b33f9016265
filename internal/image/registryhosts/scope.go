package registryhosts

import (
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/remotes/docker"
)

// scoped is the transport for a registry's host. A registry chooses where it redirects to and who gives tokens for it,
// so these do not get the host's client certificate and headers, and their certificates are verified.
type scoped struct {
	address string // of the host
	header  http.Header
	// configured are the transports of the hosts of the same hosts.toml file, by address; others is for all others.
	configured map[string]http.RoundTripper
	others     http.RoundTripper
}

// scope returns a transport for each host.
func scope(hosts []docker.RegistryHost) []http.RoundTripper {
	all, configured := make([]http.RoundTripper, len(hosts)), map[string]http.RoundTripper{}
	for _, host := range slices.Backward(hosts) { // the first one of an address counts
		configured[addressOf(host)] = host.Client.Transport
	}
	for i, host := range hosts {
		s := scoped{addressOf(host), host.Header, maps.Clone(configured), verifying(host.Client.Transport)}
		s.configured[s.address] = host.Client.Transport
		all[i] = s
	}
	return all
}

// verifying returns a transport like that of a host which has no certificate and verifies others': with the host's
// authorities too, for a registry whose authority is the administrator's own has its tokens from a host with the same.
func verifying(of http.RoundTripper) http.RoundTripper {
	plain := docker.DefaultHTTPTransport(&tls.Config{})
	if t, ok := of.(*http.Transport); ok {
		plain = t.Clone()
		plain.TLSClientConfig = &tls.Config{}
		if t.TLSClientConfig != nil {
			plain.TLSClientConfig.RootCAs = t.TLSClientConfig.RootCAs
		}
	}
	return plain
}

func addressOf(host docker.RegistryHost) string {
	return address(&url.URL{Scheme: host.Scheme, Host: host.Host})
}

// address returns a URL's host and port.
func address(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// RoundTrip implements http.RoundTripper.
func (s scoped) RoundTrip(q *http.Request) (*http.Response, error) {
	to := address(q.URL)
	if to != s.address && len(s.header) > 0 {
		q = q.Clone(q.Context())
		remove(q.Header, s.header)
	}
	if t := s.configured[to]; t != nil {
		return t.RoundTrip(q)
	}
	return s.others.RoundTrip(q)
}

// remove removes values from a header: containerd has appended them, and Go's client passes them on when it is
// redirected. A hosts.toml file may write names in any case.
func remove(header, values http.Header) {
	for name, unwanted := range values {
		for key, all := range header {
			if !strings.EqualFold(key, name) {
				continue
			}
			all = slices.DeleteFunc(slices.Clone(all), func(v string) bool { return slices.Contains(unwanted, v) })
			if header[key] = all; len(all) == 0 {
				delete(header, key)
			}
		}
	}
}
