package http

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/fileerror"
	"time"
)

// dialer owns the HTTP transports and reloads the certificate files when they change. While the
// files cannot be used, the previous certificates remain in use, because several files are not
// replaced at the same moment.
type dialer struct {
	// caFile, certFile and keyFile may be empty: the system's authorities, no client certificate.
	caFile, certFile, keyFile string
	dial                      func(ctx context.Context, network, address string) (net.Conn, error)
	idle                      time.Duration // how long an idle connection remains open

	// made is for requests to the URL's own host; away is for other hosts and has no client
	// certificate.
	made, away *http.Transport
	pems       pems // the file contents that made was created from
	// stale is the error because of which made does not have the current content of the files; nil
	// if it has.
	stale error
}

// pems are the contents of the CA, certificate and key files.
type pems struct{ ca, cert, key []byte }

// transport returns the transport for requests; home reports whether a URL is on the source URL's
// own host. It fails only if the certificate files could never be used so far.
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

// renew creates new transports if the files changed. It compares their contents: they are short,
// and modification times show no change if a symbolic link is pointed to another file.
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

// close closes the idle connections.
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
		data, err := sys.ReadSettings(f.path)
		if err == nil {
			err = fileerror.CheckPEM(f.path, data)
		}
		if err != nil {
			return pems{}, fmt.Errorf("reading %s: %w", f.what, fileerror.Named(err))
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
