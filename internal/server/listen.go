package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"podrun.io/podrun/internal/server/credentials"
)

// ListenOptions say where HTTP is served in addition to the socket, and who may send requests.
type ListenOptions struct {
	// Address is HOST:PORT; "" means that only the socket is served.
	Address string
	// CertFile and KeyFile are PEM files, which are read again when they change; "" means no TLS.
	CertFile, KeyFile string
	// TokenFile contains the token that a client must send; it is read for each request. "" means
	// that everybody who can reach the address may send requests.
	TokenFile string
	// History makes the history of what is used be kept also while nobody looks at it.
	History bool
}

// ErrAddress means that the listen options are invalid or do not fit together.
var ErrAddress = errors.New("cannot be used")

// check returns what is wrong with the options.
func (o ListenOptions) check() error {
	host, port, err := net.SplitHostPort(o.Address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	switch {
	case o.Address == "":
		return fmt.Errorf("%w: a certificate, a key and a token file are for an address, and there is none", ErrAddress)
	case err != nil:
		return fmt.Errorf("%w: must be HOST:PORT, such as 127.0.0.1:10255", ErrAddress)
	case (o.CertFile == "") != (o.KeyFile == ""):
		return fmt.Errorf("%w: a certificate and a key must be given both or neither", ErrAddress)
	case !local(host) && (o.CertFile == "" || o.TokenFile == ""):
		return fmt.Errorf("%w: other machines are answered only with a certificate, a key and a token file;"+
			" without, the host must be a loopback one, such as 127.0.0.1", ErrAddress)
	}
	if o.TokenFile != "" {
		if _, err := credentials.ReadToken(o.TokenFile); err != nil {
			return fmt.Errorf("%w: %w", ErrAddress, err)
		}
	}
	return nil
}

// listen opens the address, or returns a listener that waits for it. The TLS configuration is nil without a
// certificate.
func (o ListenOptions) listen(log *slog.Logger) (net.Listener, *tls.Config, error) {
	if err := o.check(); err != nil {
		return nil, nil, err
	}
	certificate := &credentials.Certificate{CertFile: o.CertFile, KeyFile: o.KeyFile, Log: log}
	if o.CertFile != "" {
		if _, err := certificate.Get(nil); err != nil {
			return nil, nil, fmt.Errorf("%w: %w", ErrAddress, err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), listenAgain)
	defer cancel()
	l, err := o.open(ctx)
	if errors.Is(err, ErrAddress) {
		return nil, nil, err
	}
	if err != nil {
		l = newWaiting(o.open, err, log)
	}
	if o.CertFile != "" {
		return l, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate.Get}, nil
	}
	return l, nil, nil
}

// open listens at the address. Without a certificate it must be a loopback one.
func (o ListenOptions) open(ctx context.Context) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Address)
	if err != nil {
		return nil, err
	}
	// The machine's hosts file decides what "localhost" is.
	if a, ok := l.Addr().(*net.TCPAddr); o.CertFile == "" && (!ok || !a.IP.IsLoopback()) {
		l.Close()
		return nil, fmt.Errorf("%w: %s is not a loopback address", ErrAddress, l.Addr())
	}
	return l, nil
}

// guard returns a handler that passes on only the requests that are allowed at the address.
func (o ListenOptions) guard(h http.Handler) http.Handler {
	if o.TokenFile != "" {
		return credentials.WithToken(o.TokenFile, h)
	}
	return onlyLocalHost(h)
}
