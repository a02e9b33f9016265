package httpsource

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"
)

// dialer keeps the connection, and follows its certificates' files. Files that cannot be used leave it
// with what they had before, for they are not replaced all at once.
type dialer struct {
	// caFile, certFile and keyFile may be empty: the system's authorities, no client certificate.
	caFile, certFile, keyFile string
	dial                      func(ctx context.Context, network, address string) (net.Conn, error)
	idle                      time.Duration // how long a connection is kept

	// made asks the URL's own host, and away others, which the client certificate is not offered to.
	made, away *http.Transport
	pems       pems // what made was made from
	// stale says why made is not of what the files have now; nil if it is.
	stale error
}

// pems are the contents of the files.
type pems struct{ ca, cert, key []byte }

// transport returns what to ask with, home by whether a request is to the URL's own host. It fails only as long as the
// files have never been right.
func (d *dialer) transport(home func(*url.URL) bool) (http.RoundTripper, error) {
	d.stale = d.renew()
	if d.made == nil {
		return nil, d.stale
	}
	made, away := d.made, d.away
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if home(req.URL) {
			return made.RoundTrip(req)
		}
		return away.RoundTrip(req)
	}), nil
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// renew makes a transport if the files changed. They are compared as a whole: they are short, and dates
// tell nothing about files that a link is moved to.
func (d *dialer) renew() error {
	now, err := d.read()
	if err != nil {
		return err
	}
	if d.made != nil && now.equal(d.pems) {
		return nil
	}
	config, err := d.config(now)
	if err != nil {
		return err
	}
	d.close()
	d.pems = now
	d.made, d.away = d.newTransport(config), d.newTransport(withoutCertificate(config))
	return nil
}

func withoutCertificate(config *tls.Config) *tls.Config {
	config = config.Clone()
	config.Certificates = nil
	return config
}

func (d *dialer) newTransport(config *tls.Config) *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            d.dial,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    requestTimeout,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           2,
		IdleConnTimeout:        d.idle,
		MaxResponseHeaderBytes: 256 << 10,
	}
}

// close drops the connections that no request uses.
func (d *dialer) close() {
	for _, t := range []*http.Transport{d.made, d.away} {
		if t != nil {
			t.CloseIdleConnections()
		}
	}
}

func (p pems) equal(q pems) bool {
	return bytes.Equal(p.ca, q.ca) && bytes.Equal(p.cert, q.cert) && bytes.Equal(p.key, q.key)
}

func (d *dialer) read() (pems, error) {
	var p pems
	for _, f := range []struct {
		what, path string
		into       *[]byte
	}{{"CA file", d.caFile, &p.ca}, {"client certificate", d.certFile, &p.cert}, {"client key", d.keyFile, &p.key}} {
		if f.path == "" {
			continue
		}
		data, err := os.ReadFile(f.path)
		if err != nil {
			return pems{}, fmt.Errorf("reading %s: %w", f.what, err)
		}
		*f.into = data
	}
	return p, nil
}

func (d *dialer) config(p pems) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if d.caFile != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(p.ca) {
			return nil, fmt.Errorf("reading CA file: %s has no certificate in PEM", d.caFile)
		}
	}
	if d.certFile != "" {
		pair, err := tls.X509KeyPair(p.cert, p.key)
		if err != nil {
			return nil, fmt.Errorf("reading client certificate %s with key %s: %w", d.certFile, d.keyFile, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
